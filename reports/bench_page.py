# SPDX-License-Identifier: Apache-2.0
"""docs/measured.md: the tables of stored runs of `relaxgrad bench`.

`python -m relaxgrad.reports.bench_page RUN.json` stores what is shown of the run as docs/results/bench.json and writes
the page; with a NAME behind it the run is stored as one with other settings, bench-NAME.json, of which the page has the
steps. Without a file it makes the page anew from what is stored. A test holds that the page is what this makes of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relaxgrad.benchmarks.record import AS_EAGER_MULTIPLE, Status
from relaxgrad.benchmarks.table import KERNELS, failures, penalty, report, short, steps_table
from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.harness.records import write_rows, write_text

# Of a run, what the tables show and what `relaxgrad bench --check` compares.
_RUN = ("schema", "command", "machine", "settings", "versions", "models")
_MODEL = ("model", "malloc", "reason", "inputs", "protocol", "candidates", "ratios", "profile", "profile_reason")
_STEP = ("median", "spread", "cpu")
_CANDIDATE = ("name", "status", "reason", "conditioning", "validation", "step", "warm_reason", "symbolic")
_STARTS = ("cold", "warm", "memory", "warm_memory", "graphs", "graph_breaks", "recompiles")
_START = ("loading", "first", "backend")
_RATIO = ("of_medians", "median", "spread", "of_cpu")
_SHARES = ("share_of_limit", "share_of_limit_capped")
_PROFILE = (
    *_SHARES, "step_seconds", "limit_seconds", "copy_rate", "gemm_rate", "threads", "outside_kernels",
    "native_share_of_copy", "native_time_near_copy", "memory_bound_seconds", "memory_bound_share_of_copy", "by_kind",
)  # fmt: skip
_KERNEL = (
    "graph", "name", "kind", "calls", "seconds", "bytes", "flops", "share_of_copy", "share_of_gemm", "memory_bound",
)  # fmt: skip


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


def summary(data: Mapping[str, Any], others: bool = False) -> dict[str, Any]:
    """Of a run what is shown or compared, and no more: the whole is what `relaxgrad bench --json` wrote.

    `others`: of a run with other settings, of which the page has the steps alone.
    """
    return _only(data, _RUN) | {"models": [_model(record, others) for record in data["models"]]}


def _model(record: Mapping[str, Any], others: bool) -> dict[str, Any]:
    profile, candidates = record["profile"], record["candidates"]
    if profile:
        profile = _only(profile, _SHARES) if others else _profile(profile)
    return _only(record, _MODEL) | {
        "candidates": {name: _candidate(candidate, others) for name, candidate in candidates.items()},
        "ratios": {name: _only(ratio, _RATIO) for name, ratio in record["ratios"].items()},
        "profile": profile,
    }


def _candidate(record: Mapping[str, Any], others: bool) -> dict[str, Any]:
    starts = {} if others else _only(record, _STARTS)
    starts |= {key: record[key] and _only(record[key], _START) for key in ("cold", "warm") if key in starts}
    validation = {kind: _only(found, ("worst_ratio",)) for kind, found in record["validation"].items()}
    step = record["step"] and _only(record["step"], _STEP)
    return _only(record, _CANDIDATE) | {"validation": validation, "step": step} | starts


def _profile(profile: Mapping[str, Any]) -> dict[str, Any]:
    kernels = [_only(k, _KERNEL) | {"name": short(k["name"])} for k in profile["kernels"][:KERNELS]]
    kinds = {kind: _only(total, _KERNEL) for kind, total in profile["by_kind"].items()}
    return _only(profile, _PROFILE) | {"by_kind": kinds, "kernels": kernels}


def _only(record: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: record[key] for key in keys if key in record}


def main(arguments: Sequence[str], root: Path) -> int:
    """Stores the run and writes the page below `root`/docs; 0. Raises UserError for a file that is no run."""
    folder = root / "docs" / "results"
    if arguments:
        data = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        if data.get("command") != "bench":
            raise UserError(f"{arguments[0]} is no run of `relaxgrad bench --json`")
        name = "-".join(["bench", *arguments[1:2]])
        write_rows(folder / f"{name}.json", summary(data, others=name != "bench"))
    write_text(root / "docs" / "measured.md", page(*stored_runs(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
