# SPDX-License-Identifier: Apache-2.0
"""The tables of the README, made from stored results: `python -m relaxgrad.reports.readme` (or `make readme`).

A table stands between two comment lines, `<!-- NAME:begin -->` and `<!-- NAME:end -->`; everything between them is
replaced. A test holds that the README is what this makes of docs/results/.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.harness.records import write_text

from . import markdown, models_page

EACH = 2  # models of a group that stand in the README; docs/models.md has them all
MODEL_COLUMNS = (
    "model", "parameters", "graphs", "native", "library", "metadata", "fallback", "unsupported", "gradients right",
    "verdict",
)  # fmt: skip


def models_table(data: dict[str, Any]) -> str:
    """The first models of each group of a stored audit, a line for all of them, and how that was measured."""
    found = data["models"]
    shown = [row for members in models_page.groups(found).values() for row in members[:EACH]]
    rows = [_model_row(row, f"`{row['model']}`", row["verdict"]) for row in shown]
    trained = sum(row["verdict"] in models_page.TRAINS for row in found)
    total = {
        "parameters": sum(row["parameters"] for row in found),
        "graphs": sum(row["graphs"] for row in found),
        "calls": sum((Counter(row["calls"]) for row in found), Counter()),
        "gradients": [sum(row["gradients"][i] for row in found) for i in (0, 1)],
    }
    rows.append(_model_row(total, f"**all {len(found)} of the zoo**", f"**{trained} train**"))
    align = ("left", *["right"] * (len(MODEL_COLUMNS) - 2), "left")
    versions = data["versions"]
    note = (
        "Training in train mode on TVM beside eager, every gradient validated against float64; the columns between are "
        "calls of ATen ops by how they run. Two models of each group; [docs/models.md](docs/models.md) has all, with "
        f"what is left of each blocker. CPU, torch {versions['torch']}, apache-tvm {versions['apache-tvm']}, "
        f"transformers {versions['transformers']}."
    )
    return f"{markdown.table(rows, MODEL_COLUMNS, align)}\n\n{note}"


def _model_row(row: dict[str, Any], name: str, verdict: str) -> list[str]:
    kinds = ("native", "library", "metadata", "fallback", "unsupported")
    return [
        name,
        f"{row['parameters']:,}",
        str(row["graphs"]),
        *(f"{row['calls'].get(kind, 0):,}" for kind in kinds),
        f"{row['gradients'][0]:,} of {row['gradients'][1]:,}",
        verdict,
    ]


def bench_table(data: dict[str, Any]) -> str:
    """The step times of a stored run of `relaxgrad bench`, and how they were measured."""
    from relaxgrad.benchmarks.table import inputs_of, steps_table

    records = [record for record in data["models"] if record["malloc"] == "system" and record["candidates"]]
    settings, versions = data["settings"], data["versions"]
    threads = settings["threads"]
    note = (
        f"Milliseconds a step ({records[0]['protocol']}), {threads} thread{'s' if threads != 1 else ''}; ratios above "
        "1: relaxgrad is faster. A ratio is the median over rounds of the interleaved run, ± half the "
        "interquartile range; in brackets stands the ratio of the two medians, which differs where the machine's speed "
        "drifted. `error` is the largest error of the first step's loss, gradients and buffers against float64, in "
        "units of eager's own: up to 4x is as accurate as eager, and what is timed is right (docs/numbers.md). Inputs: "
        f"{inputs_of(records)}. [docs/benchmarks.md](docs/benchmarks.md) has the protocol and the other tables. "
        f"{data['machine']['cpu']}, {data['machine']['cores']} cores, torch {versions['torch']}, apache-tvm "
        f"{versions['apache-tvm']}."
    )
    return f"{steps_table(records)}\n\n{note}"


def with_table(text: str, name: str, table: str) -> str:
    """`text` with the table called `name` replaced. Raises UserError where its two comment lines are not there."""
    pattern = re.compile(rf"(<!-- {re.escape(name)}:begin -->\n).*?(<!-- {re.escape(name)}:end -->)", re.DOTALL)
    if not pattern.search(text):
        raise UserError(f"no table {name!r}: put the lines <!-- {name}:begin --> and <!-- {name}:end --> in the file")
    return pattern.sub(lambda match: f"{match[1]}\n{table}\n\n{match[2]}", text)


def render(text: str, results: Path) -> str:
    """README text with every table made anew from the folder `results`."""
    for name, table in (("models", models_table), ("bench", bench_table)):
        stored = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
        text = with_table(text, name, table(stored))
    return text


def main(root: Path) -> int:
    """Rewrites the README below `root`; 0."""
    readme = root / "README.md"
    write_text(readme, render(readme.read_text(encoding="utf-8"), root / "docs" / "results"))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
