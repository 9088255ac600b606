# SPDX-License-Identifier: Apache-2.0
"""The table of expected failures: each line has a reason, and its samples do fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from relaxgrad.coverage.sweeps.check import GOOD, check_call
from relaxgrad.coverage.sweeps.expected_failures import Expected, read_table, sort_out, sweep_key
from relaxgrad.coverage.sweeps.worker import load_sweep

MOST = 4  # samples of a line that are tried


def fails(line: Expected) -> bool:
    """Whether some sample of the line (of the first MOST) fails."""
    name, _, dtype = line.sweep.partition("/")
    sweep = load_sweep(name, {"dtype": dtype} if dtype else {})
    torch.manual_seed(0)
    samples = sweep.samples(line.entry)
    numbers = list(samples)[:MOST] if line.sample == "*" else [int(line.sample)]
    return any(check_call(samples[n]().call).status not in GOOD for n in numbers)


def test_what_is_expected_to_fail_does_fail() -> None:
    stale = [line for line in read_table() if not fails(line)]
    assert stale == [], "these pass now: take them out of coverage/sweeps/expected_failures.tsv"


def test_a_line_that_passes_is_found() -> None:
    assert not fails(Expected("opinfo/float32", "positive", "0", "it passes"))


def test_the_table_has_no_line_twice() -> None:
    named = [(e.sweep, e.entry, e.sample) for e in read_table()]
    assert len(named) == len(set(named))


def test_a_line_without_a_reason_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "t.tsv"
    table.write_text("# a comment\n\nopinfo/float32\tadd\t3\tbecause\n")
    assert read_table(table) == [Expected("opinfo/float32", "add", "3", "because")]
    for text in ("opinfo/float32\tadd\t3\n", "opinfo/float32\tadd\t3\t \n"):
        table.write_text(text)
        with pytest.raises(ValueError, match=r"t\.tsv"):
            read_table(table)


def record(entry: str, sample: int, status: str) -> dict[str, Any]:
    return {"entry": entry, "sample": sample, "status": status}


def test_unexpected_failures_and_stale_lines_are_told_apart() -> None:
    head = {"sweep": "opinfo", "settings": {"dtype": "float32"}}
    assert sweep_key(head) == "opinfo/float32"
    table = [
        Expected("opinfo/float32", "add", "1", "r"),
        Expected("opinfo/float32", "mul", "*", "r"),
        Expected("opinfo/float32", "sub", "*", "r"),
        Expected("opinfo/float64", "div", "*", "r"),
    ]
    records = [
        record("add", 1, "wrong"),
        record("add", 2, "crash"),
        record("mul", 0, "pass"),
        record("mul", 1, "vacuous"),
        record("sub", 0, "pass"),
        record("sub", 1, "error"),
        record("div", 0, "timeout"),
        record("abs", 0, "eager"),
    ]
    unexpected, stale = sort_out(head, records, table)
    assert [(r["entry"], r["sample"]) for r in unexpected] == [("add", 2), ("div", 0)]
    assert stale == [table[1]]
