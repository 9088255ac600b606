# SPDX-License-Identifier: Apache-2.0
"""The picture of a page, and what is said where no browser is."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from relaxgrad.reports import browser as browsers
from relaxgrad.reports import picture

ROOT = Path(__file__).parents[3]


def size(file: Path) -> tuple[int, int]:
    """Width and height of a PNG, from its header."""
    data = file.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_where_no_browser_is_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(browsers.importlib.util, "find_spec", lambda name: name)
    assert picture.main([str(page), "-o", str(tmp_path / "page.png")]) == 2
    assert "no Chromium on the PATH" in capsys.readouterr().err
    monkeypatch.setattr(browsers.importlib.util, "find_spec", lambda name: None)
    assert browsers.missing() == "playwright is not installed: pip install 'relaxgrad[browser]'"
    assert picture.main([str(tmp_path / "none.html"), "-o", str(tmp_path / "page.png")]) == 2
    assert "there is no page" in capsys.readouterr().err


def test_a_picture_ends_above_the_heading_that_is_named(browser: Any, tmp_path: Path) -> None:
    """The driver of a browser runs once in a process: the picture is taken in another one."""
    import subprocess
    import sys

    page, output = tmp_path / "page.html", tmp_path / "pictures" / "page.png"
    page.write_text('<body style="margin:0"><div style="height:300px">a</div><h2 id="end" style="margin:0">b</h2>')
    command = [sys.executable, "-m", "relaxgrad.reports.picture", str(page), "-o", str(output), "--until", "end"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert size(output) == (1200, 292)
    assert told.startswith(f"{output}: 1200 x 292 pixels, ")


def test_the_picture_of_the_readme_is_there_and_small() -> None:
    picture = ROOT / "docs" / "pictures" / "report.png"
    assert size(picture)[0] == 1200
    assert picture.stat().st_size < 300_000
    assert "](docs/pictures/report.png)" in (ROOT / "README.md").read_text(encoding="utf-8")
