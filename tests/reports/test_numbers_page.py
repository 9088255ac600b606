# SPDX-License-Identifier: Apache-2.0
"""docs/numbers.md: made from the stored trial alone; every fault that slips through and every verdict is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relaxgrad.reports.numbers_page import main, page, summary

DOCS = Path(__file__).parents[2] / "docs"


def fault(kind: str, **found: Any) -> dict[str, Any]:
    row = {"model": "net", "seed": 1, "kind": kind, "node": "mm", "right": False, "as_eager": False, "times": 9e3}
    return row | {"covered": False, "excused": False} | found


def run(name: str, **found: Any) -> dict[str, Any]:
    row = {"model": "net", "seed": 1, "run": name, "right": True, "as_eager": True, "times": 1.5}
    return row | {"ill_conditioned": False, "told": ""} | found


def trial() -> dict[str, Any]:
    planted = [
        fault("bf16"),
        fault("bf16", right=True, times=6.0),
        fault("n - 1", right=True, as_eager=True, times=2.0, node="norm"),
        fault("n - 1", covered=True),
        fault("n - 1", covered=True, excused=True, node="mean"),
    ]
    runs = [
        run("inductor"),
        run("inductor", right=False, as_eager=False, times=1e4, ill_conditioned=True, told="both figures"),
        run("eager", right=False, as_eager=False, told="eager is steady"),
        run("relaxgrad", right=None, as_eager=None, times=None, told="it raised"),
    ]
    versions = {"torch": "2", "apache-tvm": "0"}
    return {"schema": 1, "versions": versions, "planted": {"net": planted}, "legitimate": {"net": runs}}


def cells(text: str, first: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {first} ")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_what_is_caught_and_what_is_not() -> None:
    text = page(summary(trial()))
    assert "2 of 5 faults (40.0%) in 1 models are caught" in text  # an excused fault is not caught
    assert cells(text, "bf16")[1:] == ["2", "1", "1", "0", "0", "0"]
    assert cells(text, "n - 1")[1:] == ["3", "2", "0", "1", "2", "1"]
    assert "- net, n - 1 at `norm`: 2.0x eager's error" in text
    assert "- net, n - 1 at `mean`: excused" in text


def test_what_is_said_of_legitimate_runs() -> None:
    text = page(summary(trial()))
    assert "1 of 3 steps are called wrong" in text
    assert cells(text, "inductor")[1:] == ["2", "1", "1", "1.5x", "1", "0"]
    assert cells(text, "relaxgrad")[1:] == ["0", "0", "0", "-", "0", "0"]
    assert "- net, seed 1, inductor: ill-conditioned: both figures" in text
    assert "- net, seed 1, eager: called wrong: eager is steady" in text
    assert "- net, seed 1, relaxgrad: did not run: it raised" in text


def test_the_page_is_what_the_stored_trial_makes_of_it(tmp_path: Path) -> None:
    stored = json.loads((DOCS / "results" / "numbers.json").read_text())
    assert (DOCS / "numbers.md").read_text() == page(stored)
    given = tmp_path / "trial.json"
    given.write_text(json.dumps(trial()))
    (tmp_path / "docs" / "results").mkdir(parents=True)
    assert main([str(given)], tmp_path) == 0
    assert (tmp_path / "docs" / "numbers.md").read_text() == page(summary(trial()))
