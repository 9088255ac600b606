# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad cache`: what it says of the folder, and what it removes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from relaxgrad.bridge.compile.cache.folder import Folder
from relaxgrad.cli.main import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A folder with three entries of 3 MiB together."""
    monkeypatch.setenv("RELAXGRAD_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("RELAXGRAD_CACHE", "1")
    monkeypatch.delenv("RELAXGRAD_CACHE_SIZE", raising=False)
    folder = Folder(tmp_path / "graphs")
    assert folder.prepare()
    for number in range(3):
        assert folder.write(f"entry{number}", "text", lambda path: path.write_bytes(bytes(2**20)) and None)
    return folder


def test_info_says_where_and_how_much(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "info"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{folder.path}: 3 compiled graphs, 3.0 MiB of 1024 MiB\n")
    assert "turned off" not in said


def test_info_as_json(folder: Folder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXGRAD_CACHE_SIZE", "0.5")
    monkeypatch.setenv("RELAXGRAD_CACHE", "0")
    os.utime(folder.entry("entry1"), (1e9, 1e9))
    assert main(["cache", "info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["folder"] == str(folder.path)
    assert (found["entries"], found["limit"], found["oldest_use"]) == (3, 2**19, 1e9)
    assert found["bytes"] == sum(p.stat().st_size for p in folder.path.glob("*.so")) > 3 * 2**20
    assert found["enabled"] is False


def test_info_of_a_folder_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXGRAD_CACHE_DIR", str(tmp_path / "none"))
    assert main(["cache", "info"]) == 0
    assert "0 compiled graphs, 0.0 MiB" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_clear_removes_entries_and_nothing_else(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = folder.path / "notes.txt"
    foreign.write_text("mine")
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"{folder.path}: removed 3 compiled graphs, 3.0 MiB\n"
    assert [p.name for p in folder.path.iterdir()] == ["notes.txt"]
    assert main(["cache", "info"]) == 0
    assert "0 compiled graphs" in capsys.readouterr().out


def test_a_size_that_is_no_number_is_one_clear_line(
    folder: Folder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXGRAD_CACHE_SIZE", "much")
    assert main(["cache", "info"]) == 2
    assert capsys.readouterr().err == "relaxgrad: RELAXGRAD_CACHE_SIZE='much' is no number of MiB; take one as 1024\n"
