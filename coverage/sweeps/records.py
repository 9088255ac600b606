# SPDX-License-Identifier: Apache-2.0
"""The records of a sweep on disk: JSON lines, one a sample, after a first line that says what was swept.

A line is written whole in one call and the file only grows, so that whatever ends the sweep leaves every finished
sample. A last line that is cut off is dropped when the file is read again.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relaxgrad.bridge.errors import UserError

from ..harness.records import plain, write_text

SCHEMA = 1  # of the lines; raised when a key changes its meaning or goes away


class Records:
    """The file of one sweep, open for adding. Several threads may add."""

    def __init__(self, path: Path, head: dict[str, Any], resume: bool):
        """Opens `path`. Raises UserError for a file that is there without `resume`, or is of another sweep."""
        self.path = path
        self._lock = threading.Lock()
        head = {"schema": SCHEMA, **plain(head)}
        if path.exists():
            if not resume:
                raise UserError(f"{path} has records of an earlier run: go on with --resume, or give another folder")
            found = _cut_to_whole_lines(path)
            if found is None:
                path.unlink()
            elif _same_sweep(found, head) is False:
                raise UserError(
                    f"{path} was made by another sweep, or with other settings or versions; give another folder"
                )
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        if not os.fstat(self._file).st_size:
            self._write(head)

    def add(self, record: dict[str, Any]) -> None:
        """Appends one record."""
        self._write(record)

    def _write(self, value: dict[str, Any]) -> None:
        with self._lock:
            os.write(self._file, _line(value).encode())

    def close(self) -> None:
        os.close(self._file)


def _same_sweep(found: dict[str, Any], head: dict[str, Any]) -> bool:
    return all(found.get(key) == head.get(key) for key in ("schema", "sweep", "settings", "versions"))


def forget(path: Path, drop: Callable[[dict[str, Any]], bool]) -> None:
    """Drops the records for which `drop` holds from a sweep's file, so that a run with `resume` checks them anew."""
    head, records = read_records(path)
    kept = [record for record in records if not drop(record)]
    write_records(path, head, kept)


def write_records(path: Path, head: dict[str, Any], records: list[dict[str, Any]]) -> None:
    """Writes a whole file of records, or none: for what is not measured but put together."""
    write_text(path, "".join(_line(value) for value in (head, *records)))


def _line(value: dict[str, Any]) -> str:
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":")) + "\n"


def _cut_to_whole_lines(path: Path) -> dict[str, Any] | None:
    """Drops an unfinished last line and returns the first one; None where no line is whole."""
    text = path.read_bytes()
    end = text.rfind(b"\n") + 1
    if end != len(text):
        with open(path, "r+b") as file:
            file.truncate(end)
    if not end:
        return None
    try:
        head: dict[str, Any] = json.loads(text[: text.find(b"\n")])
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not a file of sweep records: its first line is not JSON") from error
    return head


def read_records(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The head and the records of a sweep's file. Raises UserError for a file that is not one."""
    try:
        lines = path.read_text().splitlines()
        head, *records = [json.loads(line) for line in lines if line.endswith("}")]
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as sweep records ({error}); `relaxgrad audit -o DIR` makes them"
        ) from error
    if not isinstance(head, dict) or head.get("schema") != SCHEMA:
        raise UserError(f"{path} has no sweep records of schema {SCHEMA}; `relaxgrad audit -o DIR` makes them")
    return head, records


def finished_samples(path: str | Path) -> set[tuple[str, int]]:
    """(entry, sample) of every record in a sweep's file."""
    return {(record["entry"], record["sample"]) for record in read_records(Path(path))[1]}
