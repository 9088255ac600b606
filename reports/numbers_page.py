# SPDX-License-Identifier: Apache-2.0
"""docs/numbers.md: the rule of validation, and a study of what it catches.

`python -m relaxgrad.reports.numbers_page TRIAL.json` stores the counts of what `python -m relaxgrad.coverage.trial.run
TRIAL.json` left and writes the page; without a file it makes the page anew from what is stored. A test holds that the
page is what this makes of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from relaxgrad.coverage.harness.conditioning import MOVED, MOVES
from relaxgrad.coverage.harness.numbers import AS_EAGER, NOISE, RIGHT
from relaxgrad.coverage.harness.records import write_rows, write_text

from .markdown import cell, table

Row = dict[str, Any]

SCHEMA = 2  # of what is stored

FAULT_COLUMNS = (
    "fault",
    "planted",
    "caught by *right*",
    "by *as accurate as eager* alone",
    "by neither",
    "eager moves as far",
    "excused",
)
RUN_COLUMNS = (
    "run", "steps validated", "as accurate as eager", "right", "worst of the right", "ill-conditioned", "called wrong",
)  # fmt: skip


#: What stands before the tables.
_TEXTS = (
    """\
# When is a gradient right?

Made by `python -m relaxgrad.reports.numbers_page`; the tables are of `python -m relaxgrad.coverage.trial.run
TRIAL.json`, {versions}, one thread, CPU.

Float32 eager is not the truth, so every backend (relaxgrad, Inductor, any other) is held against the same step in
float64 with the same dropout masks, and the distance is measured in units of eager's own. With the largest error over
a tensor's elements, `eps` of the dtype, and `scale` the largest value of the float64 tensor:""",
    """\
Where eager's own error is {noise} of `scale` or more, the exact value is zero up to rounding and `scale` is the largest
value of the whole set. A missing gradient, one that is all zero, a NaN that eager does not have, another shape or dtype
are wrong whatever the distance.

**Ill-conditioned.** Where something is not right, two more questions are asked before it is called wrong. Does eager
itself move as far on each of these tensors: without oneDNN, in channels_last, on another number of threads, with inputs
moved up or down by one unit in the last place, or with inputs and parameters moved at random by up to {moved} eps
({moves} draws)? Does the same problem compiled in float64 agree with eager in float64 to 1e-9? Two
yes make it *ill-conditioned at this seed*, with both figures, and the model is validated at the next seeds. Loss curves
are held to the largest distance between any two of eager's own runs.

**A zero where eager has none.** AOTAutograd gives a gradient of exactly zero to a parameter that the loss does not
reach through a graph's outputs, where eager leaves None. It is accepted only where `aot_eager`, PyTorch's own kernels
in the same graphs, gives one too, and it is named. It is no rounding: AdamW decays a weight whose gradient is zero, and
skips one that has none. A backend cannot tell the two apart: AOTAutograd fills in the zeros before it calls the
backward graph.""",
    """\
{caught} in {models} models are caught by *right* and the structure. A fault is planted in one op of a traced step that
runs in PyTorch's own kernels; one that leaves every number as it was is not counted. *Eager moves as far*: one of
eager's variants does, so that the fault was planted in float64 too; *excused*: it does not show there either, and would
pass as ill-conditioned. The constants of the grades were fixed before, on other models.""",
    """\
{wrong} steps are called wrong: twelve models, three seeds that no constant of the grades was fitted to. Eager's
variants are held against plain eager and, where they are not right, against the other variants and the draws;
`aot_eager`, Inductor (drawing eager's random numbers) and relaxgrad are compilers at work. `worst of the right` is in
units of eager's error. What was changed after a look at these runs: the size of the random moves (perf-resnet, seed 1);
their number, 8 at first, with which channels_last on perf-unet went further than anything else of eager; and inputs
moved down beside up, since a shift of one sign moves a mean as no rounding does. The factors were not.""",
)


def summary(trial: dict[str, Any]) -> dict[str, Any]:
    """What the page says of a trial: counts, the lines of its tables, and what is named below them."""
    planted = [row for rows in trial["planted"].values() for row in rows]
    runs = [row for rows in trial["legitimate"].values() for row in rows]
    ran = [row for row in runs if row["right"] is not None]
    return {
        "schema": SCHEMA,
        "versions": trial["versions"],
        "models": len(trial["planted"]),
        "planted": len(planted),
        "caught": sum(not row["right"] and not row["excused"] for row in planted),
        "ran": len(ran),
        "wrong": sum(not row["right"] and not row["ill_conditioned"] for row in ran),
        "faults": [*_fault_rows(planted)],
        "named": [*_named(planted)],
        "runs": [*_run_rows(runs)],
        "told": [*_told(runs)],
    }


def page(data: dict[str, Any]) -> str:
    """The text of docs/numbers.md, of a trial's summary."""
    versions, caught, planted = data["versions"], data["caught"], data["planted"]
    told = {
        "versions": f"torch {versions['torch']}, apache-tvm {versions['apache-tvm']}",
        "noise": f"{NOISE:g}",
        "moved": MOVED,
        "moves": MOVES,
        "caught": f"{caught} of {planted} faults ({caught / max(planted, 1):.1%})",
        "models": data["models"],
        "wrong": f"{data['wrong']} of {data['ran']}",
    }
    rule = [
        ["as accurate as eager", _rule(AS_EAGER), "the gate of this project's own tests; a column elsewhere"],
        ["right", _rule(RIGHT), "decides what trains and what is timed, for every backend alike"],
    ]
    before, between, faults, legitimate = (text.format(**told) for text in _TEXTS)
    parts = [
        before,
        table(rule, ("grade", "error at most", "what it is for")),
        between,
        "## Planted faults",
        faults,
        table(data["faults"], FAULT_COLUMNS),
        "\n".join(data["named"]),
        "## Legitimate runs",
        legitimate,
        table(data["runs"], RUN_COLUMNS),
        "\n".join(data["told"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _rule(grade: Any) -> str:
    return f"max({grade.multiple:g} x eager's, {grade.floor_eps:g} eps x scale)"


def _fault_rows(planted: Sequence[Row]) -> Iterator[list[str]]:
    kinds = {
        kind: [row for row in planted if row["kind"] == kind] for kind in dict.fromkeys(r["kind"] for r in planted)
    }
    for kind, rows in (*kinds.items(), ("**all**", list(planted))):
        stricter = sum(row["right"] and not row["as_eager"] for row in rows)
        yield [
            kind,
            str(len(rows)),
            str(sum(not row["right"] for row in rows)),
            str(stricter),
            str(sum(row["right"] and row["as_eager"] for row in rows)),
            str(sum(row["covered"] for row in rows)),
            str(sum(row["excused"] for row in rows)),
        ]


def _named(planted: Sequence[Row]) -> Iterator[str]:
    """The faults that *right* lets pass or that eager's variants excuse, each by its place."""
    return (
        f"- {row['model']}, {row['kind']} at `{row['node']}`: "
        + (
            "excused, since eager's variants move as far"
            if row["excused"]
            else f"{row['times']:.1f}x eager's error"
            if row["times"]
            else "-"
        )
        for row in planted
        if row["right"] or row["excused"]
    )


def _run_rows(runs: Sequence[Row]) -> Iterator[list[str]]:
    for name in dict.fromkeys(row["run"] for row in runs):
        rows = [row for row in runs if row["run"] == name and row["right"] is not None]
        times = [row["times"] for row in rows if row["right"] and row["times"] is not None]
        yield [
            name,
            str(len(rows)),
            str(sum(row["as_eager"] for row in rows)),
            str(sum(row["right"] for row in rows)),
            f"{max(times):.1f}x" if times else "-",
            str(sum(row["ill_conditioned"] for row in rows)),
            str(sum(not row["right"] and not row["ill_conditioned"] for row in rows)),
        ]


def _told(runs: Sequence[Row]) -> Iterator[str]:
    return (
        f"- {row['model']}, seed {row['seed']}, {row['run']}: {_outcome(row)}: {cell(row['told'])}"
        for row in runs
        if not row["right"]
    )


def _outcome(row: Row) -> str:
    """What became of a run that is not right."""
    if row["right"] is None:
        return "did not run"
    return "ill-conditioned" if row["ill_conditioned"] else "called wrong"


def main(arguments: Sequence[str], root: Path) -> int:
    """Stores the trial and writes the page below `root`/docs; 0."""
    stored = root / "docs" / "results" / "numbers.json"
    if arguments:
        write_rows(stored, summary(json.loads(Path(arguments[0]).read_text(encoding="utf-8"))))
    write_text(root / "docs" / "numbers.md", page(json.loads(stored.read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
