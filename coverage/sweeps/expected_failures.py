# SPDX-License-Identifier: Apache-2.0
"""The table of samples that are known to fail, with a reason each: coverage/sweeps/expected_failures.tsv.

A line has four columns parted by tabs: sweep (with its dtype, as `opinfo/float32`), entry, sample (a number, or `*`
for every sample), reason. A line whose samples pass is a fault of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .check import GOOD

TABLE = Path(__file__).parent / "expected_failures.tsv"


@dataclass(frozen=True)
class Expected:
    """One line of the table."""

    sweep: str
    entry: str
    sample: str
    reason: str

    def covers(self, sweep: str, record: dict[str, Any]) -> bool:
        """Whether the line speaks of this record of `sweep`."""
        return (self.sweep, self.entry) == (sweep, record["entry"]) and self.sample in ("*", str(record["sample"]))


def sweep_key(head: dict[str, Any]) -> str:
    """The name under which the table knows a sweep."""
    dtype = head["settings"].get("dtype")
    return f"{head['sweep']}/{dtype}" if dtype else str(head["sweep"])


def read_table(path: Path = TABLE) -> list[Expected]:
    """The lines of the table. Raises ValueError for one that is not in the format, or has no reason."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    table = []
    for line in lines:
        columns = line.split("\t")
        if len(columns) != 4 or not all(column.strip() for column in columns):
            raise ValueError(f"{path.name}: not `sweep TAB entry TAB sample TAB reason`: {line!r}")
        table.append(Expected(*columns))
    return table


def sort_out(
    head: dict[str, Any], records: list[dict[str, Any]], table: list[Expected]
) -> tuple[list[dict[str, Any]], list[Expected]]:
    """(records that fail and are not in the table, lines of the table all of whose samples here pass)."""
    sweep = sweep_key(head)
    unexpected = []
    for record in records:
        failed = record["status"] not in GOOD and record["status"] != "eager"
        if failed and not any(line.covers(sweep, record) for line in table):
            unexpected.append(record)
    stale = []
    for line in table:
        seen = [r for r in records if line.covers(sweep, r)]
        if seen and all(r["status"] in GOOD for r in seen):
            stale.append(line)
    return unexpected, stale
