# SPDX-License-Identifier: Apache-2.0
"""What the records of a sweep add up to."""

from __future__ import annotations

from typing import Any

import pytest

from relaxgrad.coverage.sweeps.summary import all_fell_back, headline, kind_of, markdown, summarise


def record(entry: str, sample: int, status: str = "pass", graphs: int = 2, **calls: int) -> dict[str, Any]:
    outputs = {"out": "verified" if status == "pass" else "wrong" if status == "wrong" else "untested"}
    return {
        "entry": entry,
        "sample": sample,
        "status": status,
        "graphs": graphs,
        "calls": calls,
        "ops": {"aten.x.default": calls},
        "outputs": outputs,
        "seconds": 0.5,
    }


@pytest.mark.parametrize(
    ("calls", "graphs", "kind", "all_back"),
    [
        ({"native": 3, "library": 1}, 2, "native", False),
        ({"library": 1, "metadata": 4}, 1, "library", False),
        ({"metadata": 4}, 1, "metadata", False),
        ({}, 1, "metadata", False),
        ({"native": 3, "fallback": 1}, 2, "fallback", False),
        ({"fallback": 1, "metadata": 1}, 2, "fallback", True),
        ({}, 0, "fallback", True),
    ],
)
def test_a_sample_ran_as_the_least_of_its_nodes(calls: dict[str, int], graphs: int, kind: str, all_back: bool) -> None:
    made = record("e", 0, graphs=graphs, **calls)
    assert kind_of(made) == kind
    assert all_fell_back(made) == all_back


HEAD = {
    "sweep": "opinfo",
    "settings": {"dtype": "float32", "samples": None},
    "entries": ["add", "svd", "bad", "odd", "no"],
}
RECORDS = [
    record("add", 0, native=1),
    record("add", 1, "vacuous", native=1),
    record("svd", 0, fallback=2),
    record("bad", 0, "wrong", native=1) | {"detail": "out: a | b"},
    record("bad", 1, native=1),
    record("odd", 0, native=1, fallback=1),
    {"entry": "no", "sample": 0, "status": "eager", "detail": "RuntimeError: not here"},
]


def test_entries_that_pass_only_in_aten_count_apart() -> None:
    summary = summarise(HEAD, RECORDS)
    totals = summary["entry_totals"]
    assert totals["passed"] == 3
    assert totals["passed_all_fell_back"] == 1
    assert totals["failed"] == ["bad"]
    assert totals["eager_cannot"] == ["no"]
    assert (totals["native_or_library"], totals["partly_fell_back"], totals["all_fell_back"]) == (2, 1, 1)
    assert summary["samples"] == {"pass": 4, "vacuous": 1, "wrong": 1, "eager": 1}
    assert summary["entries"]["bad"]["outputs"] == {"out": "wrong"}
    assert summary["entries"]["bad"]["failures"] == [{"sample": 0, "status": "wrong", "detail": "out: a | b"}]
    assert summary["ops"]["aten.x.default"]["kinds"] == {"native": 5, "fallback": 3}
    assert summary["seconds"] == {"total": 3.0, "median": 0.5}


def test_the_upstream_importer_stands_beside_what_it_was_measured_in() -> None:
    for other in ({"dtype": "float16"}, {"dynamic": True}):
        assert "upstream_importer" not in summarise(HEAD | {"settings": HEAD["settings"] | other}, RECORDS)
    upstream = summarise(HEAD, RECORDS)["upstream_importer"]
    assert upstream["verdicts"] == {"right": 1, "fails": 1}
    assert upstream["beside"] == {"right, here passed": 1, "fails, here passed": 1}
    assert upstream["passes"] == "forward only"


def test_recorded_calls_are_weighted() -> None:
    head = {"sweep": "op-logs", "settings": {}, "entries": ["add", "bad"]}
    records = [
        record("add", 0, native=1) | {"count": 72},
        record("add", 1, metadata=1) | {"count": 20},
        record("bad", 0, "wrong", fallback=1) | {"count": 8},
    ]
    calls = summarise(head, records)["recorded_calls"]
    assert calls["status"] == {"pass": 92, "wrong": 8}
    assert calls["kinds"] == {"native": 72, "metadata": 20, "fallback": 8}
    (line,) = [line for line in headline(summarise(head, records)) if line.startswith("Weighted")]
    assert "92.0% pass, 72.0% run native or library and 20.0% need no kernel" in line
    assert "of those that need one, 90.0% run native or library" in line


def test_the_page_has_every_entry_and_every_failure() -> None:
    page = markdown(summarise(HEAD, RECORDS))
    assert all(f"| {name} |" in page for name in HEAD["entries"])
    assert "| bad | 0 | wrong | out: a \\| b |" in page
    assert "- no: RuntimeError: not here" in page
    assert "3 entries pass every sample; of these 1 only because all of them fell back" in page
