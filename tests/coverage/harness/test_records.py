# SPDX-License-Identifier: Apache-2.0
"""Files of measurements: valid whatever was measured, whole or not at all."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.harness.records import ROW, write_json, write_rows, write_text


def test_what_json_has_no_number_for_is_null(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_json(path, {"a": [math.nan, -math.inf, 1.5], "b": (1, "x", None, True)})
    text = path.read_text()
    assert "NaN" not in text
    assert json.loads(text) == {"a": [None, None, 1.5], "b": [1, "x", None, True]}
    assert path.stat().st_mode & 0o044


def test_what_is_stored_has_a_row_a_line(tmp_path: Path) -> None:
    path = tmp_path / "stored.json"
    value = {"rows": [{"name": f"a {n}", "seconds": n / 3, "none": math.nan} for n in range(9)], "more": [0] * 99}
    write_rows(path, value)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[2] == '  {"name": "a 0", "seconds": 0.0, "none": null},'
    assert lines[3] == '  {"name": "a 1", "seconds": 0.333333333, "none": null},'
    assert max(map(len, lines)) <= ROW
    read = json.loads(path.read_text(encoding="utf-8"))
    assert [row["seconds"] for row in read["rows"]][:4] == [0.0, 0.333333333, 0.666666667, 1.0]
    assert read["more"] == value["more"]
    write_rows(tmp_path / "again.json", read)
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        write_json(tmp_path, {})
    with pytest.raises(UserError, match="there is no folder"):
        write_json(tmp_path / "no" / "out.json", {})


def test_a_text_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    write_text(path, "old\n")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]
