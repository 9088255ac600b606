# SPDX-License-Identifier: Apache-2.0
"""What watches the pages sees what it should."""

from __future__ import annotations

from pathlib import Path

from tests.reports.browser.conftest import Open
from tests.reports.browser.looks import faint, shown, sticking_out


def test_requests_messages_and_errors_are_seen(show: Open, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        '<img src="http://127.0.0.1:9/a.png"><link rel="stylesheet" href="b.css">'
        '<script>console.warn("careful"); throw new Error("oh")</script>'
    )
    opened = show(page)
    found, opened.faults[:] = list(opened.faults), []
    assert "asked for http://127.0.0.1:9/a.png" in found
    assert f"asked for {(tmp_path / 'b.css').as_uri()}" in found
    assert "console: warning: careful" in found
    assert "error: oh" in found


def test_what_sticks_out_is_seen_unless_a_box_around_it_scrolls(show: Open, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<p style="width:500px">wide</p><div style="overflow:auto"><p style="width:500px">held</p></div>')
    opened = show(page, 400)
    assert sticking_out(opened.page) == ["P : wide"]
    assert opened.sized()[0] > 400


def test_faint_text_is_seen(show: Open, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        '<body style="background:#fff"><p style="color:#777">nearly</p><p style="color:#767676">enough</p>'
        '<p style="color:#000;opacity:.4">through</p>'
        '<div style="background:#123"><p style="color:#000">on dark</p></div><p hidden style="color:#eee">hidden</p>'
    )
    opened = show(page)
    assert faint(opened.page) == ["4.48 P : nearly", "2.85 P : through", "1.30 P : on dark"]
    assert shown(opened.page, "p") == ["nearly", "enough", "through", "on dark"]
