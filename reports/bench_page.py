"""docs/measured.md: the tables of stored runs of `relaxgrad bench`.

`python -m relaxgrad.reports.bench_page RUN.json` stores the run as docs/results/bench.json and writes the page; with a
NAME behind it the run is stored as one with other settings, bench-NAME.json, of which the page has the steps. Without
a file it makes the page anew from what is stored. A test holds that the page is what this makes of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relaxgrad.benchmarks.record import AS_EAGER_MULTIPLE, Status
from relaxgrad.benchmarks.table import failures, penalty, report, steps_table
from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.harness.records import write_json, write_text

KERNELS = 25  # of a model's profile that are stored


def page(data: dict[str, Any], others: Mapping[str, dict[str, Any]] | None = None) -> str:
    """The text of docs/measured.md, of the main run and of those with other settings, by name."""
    machine, versions = data["machine"], data["versions"]
    head = (
        "# Benchmarks, measured\n\nMade from a stored run by `python -m relaxgrad.reports.bench_page`; nothing here is "
        "written by hand. [benchmarks.md](benchmarks.md) says how it is measured, and `relaxgrad bench --check "
        "docs/results/bench.json` measures anew on a machine of the same kind.\n\n"
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory']} GiB; torch {versions['torch']}, apache-tvm "
        f"{versions['apache-tvm']}, transformers {versions['transformers']}."
    )
    parts = [head, report(data["models"])]
    for name, other in (others or {}).items():
        records = [_of_one_grade(record) for record in other["models"]]
        cpu = other["machine"]["cpu"]
        where = "" if cpu == machine["cpu"] else f" On another machine: {cpu}."
        parts += [f"## Other settings, {name}", f"{records[0]['protocol']}.{where}", steps_table(records)]
        parts += [text for text in (penalty(records), "\n".join(f"- {line}" for line in failures(records))) if text]
    return "\n\n".join(parts) + "\n"


def _of_one_grade(record: dict[str, Any]) -> dict[str, Any]:
    """The record of a run that knew one grade and timed nothing that is less accurate than eager (docs/numbers.md).

    What it called wrong at up to twice the stricter limit is right: the limit of *right* is at least twice as large.
    """
    if "inputs" in record:
        return record
    candidates = {name: dict(candidate) for name, candidate in record["candidates"].items()}
    for candidate in candidates.values():
        if candidate["status"] != Status.WRONG:
            continue
        ratio = max(found["worst_ratio"] or 0.0 for found in candidate["validation"].values())
        times = f"{ratio * AS_EAGER_MULTIPLE:.1f}x eager's error"
        why = "right" if ratio <= 2 else "not asked whether eager is steadier"
        candidate |= {"status": "not timed", "reason": f"{times}, {why}; this run timed what is as accurate as eager"}
    return record | {"candidates": candidates}


def stored_runs(folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The main run of docs/results and those with other settings."""
    main = json.loads((folder / "bench.json").read_text(encoding="utf-8"))
    others = {path.stem.removeprefix("bench-"): path for path in sorted(folder.glob("bench-*.json"))}
    return main, {name: json.loads(path.read_text(encoding="utf-8")) for name, path in others.items()}


def _shortened(data: dict[str, Any]) -> dict[str, Any]:
    """The run without the kernels that no table shows."""
    for record in data["models"]:
        if record["profile"]:
            record["profile"]["kernels"] = record["profile"]["kernels"][:KERNELS]
    return data


def main(arguments: Sequence[str], root: Path) -> int:
    """Stores the run and writes the page below `root`/docs; 0. Raises UserError for a file that is no run."""
    folder = root / "docs" / "results"
    if arguments:
        data = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        if data.get("command") != "bench":
            raise UserError(f"{arguments[0]} is no run of `relaxgrad bench --json`")
        write_json(folder / f"{'-'.join(['bench', *arguments[1:2]])}.json", _shortened(data))
    write_text(root / "docs" / "measured.md", page(*stored_runs(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
