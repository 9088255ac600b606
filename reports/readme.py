"""The tables of README.md, made from stored results: `python -m relaxgrad.reports.readme` (or `make readme`).

A table stands between two comment lines, `<!-- NAME:begin -->` and `<!-- NAME:end -->`; everything between them is
replaced. A test holds that the README is what this makes of docs/results/.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from relaxgrad.bridge.errors import UserError

TRAIN_COLUMNS = (
    "model", "parameters", "graphs", "native", "library", "fallback", "gradients right", "loss curve differs by",
    "step, eager", "step, TVM", "first step",
)  # fmt: skip


def train_table(results: dict[str, Any]) -> str:
    """The Markdown table of a `relaxgrad train --json` file, and one line that says how it was measured."""
    from tabulate import tabulate

    records = results["models"]
    rows = [_train_row(record) for record in records]
    align = ("left", *["right"] * (len(TRAIN_COLUMNS) - 1))
    table = tabulate(rows, TRAIN_COLUMNS, tablefmt="github", colalign=align, disable_numparse=True)
    versions = results["versions"]
    steps, threads = records[0]["steps"], records[0]["threads"]
    note = (
        f"{steps} AdamW steps in train mode, dropout on, the same seed in eager and on TVM; batches and widths are "
        f"small. Times are medians of interleaved steps on {threads} thread{'s' if threads != 1 else ''} "
        f"of {results.get('machine', 'an unnamed machine')}; "
        f"torch {versions['torch']}, apache-tvm {versions['apache-tvm']}, transformers {versions['transformers']}."
    )
    return f"{table}\n\n{note}"


def _train_row(record: dict[str, Any]) -> list[str]:
    gradients, calls, graphs = record["gradients"], record["calls"], record["graphs"]
    eager, compiled = record["time_eager"], record["time_compiled"]
    model = record["model"] if record["status"] == "trained" else f"{record['model']} ({record['status']})"
    return [
        model,
        f"{record['parameters']:,}",
        f"{graphs['forward']} + {graphs['backward']}",
        *(str(calls[kind]) for kind in ("native", "library", "fallback")),
        f"{gradients['compared'] - len(gradients['failed'])} of {gradients['compared']}",
        f"{record['loss_difference']:.0e}",
        f"{eager['median'] * 1e3:.2f} ms",
        f"{compiled['median'] * 1e3:.2f} ms",
        f"{compiled['first']:.1f} s",
    ]


def with_table(text: str, name: str, table: str) -> str:
    """`text` with the table called `name` replaced. Raises UserError where its two comment lines are not there."""
    pattern = re.compile(rf"(<!-- {re.escape(name)}:begin -->\n).*?(<!-- {re.escape(name)}:end -->)", re.DOTALL)
    if not pattern.search(text):
        raise UserError(f"no table {name!r}: put the lines <!-- {name}:begin --> and <!-- {name}:end --> in the file")
    return pattern.sub(lambda match: f"{match[1]}\n{table}\n\n{match[2]}", text)


def render(text: str, results: Path) -> str:
    """README text with every table made anew from the folder `results`."""
    train = json.loads((results / "train.json").read_text(encoding="utf-8"))
    return with_table(text, "train", train_table(train))


def main(root: Path) -> int:
    """Rewrites README.md below `root`; 0."""
    readme = root / "README.md"
    text = render(readme.read_text(encoding="utf-8"), root / "docs" / "results")
    temporary = readme.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(readme)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
