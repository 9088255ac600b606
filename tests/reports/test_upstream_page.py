# SPDX-License-Identifier: Apache-2.0
"""The page of TVM's bugs: what it says of each, and that it is written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.upstream.runner import Found, KnownBug, describe, scripts
from relaxgrad.reports import upstream_page

ROOT = Path(__file__).parents[2]
VERSIONS = {"python": "3.11.7", "torch": "2.13.0", "apache-tvm": "0.27.0"}
WRONG = KnownBug("wrong", "tir: a | b", "What is wrong.", "print(1)", "1 | 2", "3", Found.REPRODUCED, 1.0, VERSIONS)
FIXED = KnownBug("fixed", "tir: fixed", "Was wrong.", "print(2)", "1", "1", Found.GONE, 1.0, VERSIONS)


def test_a_bug_has_a_row_and_a_section() -> None:
    text = upstream_page.page([WRONG, FIXED], ["aten.amax.default"], 2)
    assert "| [tir: a \\| b](#wrong) | 1 \\| 2 | 3 | reproduced |\n" in text
    assert "| [tir: fixed](#fixed) | 1 | 1 | gone |\n" in text
    assert "apache-tvm 0.27.0, torch 2.13.0, Python 3.11.7:\n1 of 2 bugs reproduced" in text
    assert "1 of the 2 core ATen overloads" in text
    assert "`aten.amax.default`" in text
    section = '<a id="wrong"></a>\n\n## tir: a | b\n\nWhat is wrong.\n\n```python\nprint(1)\n```\n'
    assert section + "\n```text\nexpected: 1 | 2\nseen: 3\n```\n" in text


def test_no_bugs_is_an_error() -> None:
    with pytest.raises(UserError, match="nothing to show"):
        upstream_page.page([], [], 0)


def test_the_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "upstream.md"
    page.write_text("before")
    monkeypatch.setattr(upstream_page, "unnamed_overloads", lambda: ["aten.amax.default"])

    def interrupted(**_: object) -> list[KnownBug]:
        raise KeyboardInterrupt

    monkeypatch.setattr(upstream_page, "run_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        upstream_page.main(["-o", str(page)])
    assert page.read_text() == "before"
    monkeypatch.setattr(upstream_page, "run_all", lambda **_: [WRONG])
    assert upstream_page.main(["-o", str(page)]) == 0
    assert "1 of 1 bugs reproduced" in page.read_text()
    monkeypatch.setattr(upstream_page, "run_all", lambda **_: [WRONG, FIXED])
    assert upstream_page.main(["-o", str(page)]) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["upstream.md"]


def test_a_file_that_cannot_be_written_is_an_error_before_any_script_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder"):
        upstream_page.main(["-o", str(tmp_path / "none" / "upstream.md")])


def test_the_stored_page_shows_every_script_as_it_stands() -> None:
    text = (ROOT / "docs" / "upstream.md").read_text(encoding="utf-8")
    for script in scripts():
        title, _, code = describe(script)
        assert f'<a id="{script.stem}"></a>\n\n## {title}\n' in text
        assert f"```python\n{code}\n```" in text, (
            f"{script.stem} has changed: run python -m relaxgrad.reports.upstream_page"
        )
    assert "| gone |" not in text
    assert "| failed to run |" not in text
