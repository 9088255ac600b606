"""docs/measured.md: the tables of a stored run of `relaxgrad bench`.

`python -m relaxgrad.reports.bench_page RUN.json` stores the run as docs/results/bench.json and writes the page; without
a file it makes the page anew from the stored run. A test holds that the page is what this makes of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relaxgrad.benchmarks.table import report
from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.records import write_json, write_text

KERNELS = 25  # of a model's profile that are stored


def page(data: dict[str, Any]) -> str:
    """The text of docs/measured.md."""
    machine, versions = data["machine"], data["versions"]
    head = (
        "# Benchmarks, measured\n\nMade from a stored run by `python -m relaxgrad.reports.bench_page`; nothing here is "
        "written by hand. [benchmarks.md](benchmarks.md) says how it is measured, and `relaxgrad bench --check "
        "docs/results/bench.json` measures anew on a machine of the same kind.\n\n"
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory']} GiB; torch {versions['torch']}, apache-tvm "
        f"{versions['apache-tvm']}, transformers {versions['transformers']}."
    )
    return f"{head}\n\n{report(data['models'])}\n"


def _shortened(data: dict[str, Any]) -> dict[str, Any]:
    """The run without the kernels that no table shows."""
    for record in data["models"]:
        if record["profile"]:
            record["profile"]["kernels"] = record["profile"]["kernels"][:KERNELS]
    return data


def main(arguments: Sequence[str], root: Path) -> int:
    """Stores the run and writes the page below `root`/docs; 0. Raises UserError for a file that is no run."""
    stored = root / "docs" / "results" / "bench.json"
    if arguments:
        data = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        if data.get("command") != "bench":
            raise UserError(f"{arguments[0]} is no run of `relaxgrad bench --json`")
        write_json(stored, _shortened(data))
    write_text(root / "docs" / "measured.md", page(json.loads(stored.read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
