# SPDX-License-Identifier: Apache-2.0
"""docs/cuda.md: what of the CUDA back end is verified, and how.

`python -m relaxgrad.reports.cuda_page ZOO.json OPINFO.jsonl` reads into docs/results/cuda.json what two commands wrote
on the emulated GPU, `python -m tests.bridge.devices.cuda.zoo ZOO.json MODEL...` and `relaxgrad audit --opinfo`, and
writes the page; without files it makes the page anew from the stored rows. A test holds that it is what this makes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relaxgrad.coverage.harness.records import versions, write_rows, write_text

from .markdown import cell, table

SCHEMA = 1
_NOT_RUN = "Compiled and emulated, not run on a GPU"
_COLUMNS = (
    "model",
    "training step",
    "native",
    "library",
    "fallback",
    "kernels",
    "registers, most",
    "shared, most",
    "spills",
)


def page(data: Mapping[str, Any]) -> str:
    """The text of docs/cuda.md."""
    models, opinfo = data["models"], data["opinfo"]
    trained = sum(model["status"] == "trained" for model in models)
    calls = Counter[str]()
    for model in models:
        calls.update(model["calls"])
    on_tvm, fallback = calls["native"] + calls["library"], calls["fallback"]
    measured = ", ".join(f"{name} {data['versions'][name]}" for name in ("torch", "apache-tvm"))
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(opinfo.items(), key=lambda item: -item[1]))
    parts = [
        "# CUDA",
        f"Made by `python -m relaxgrad.reports.cuda_page`; nothing here is written by hand. Measured with {measured}.",
        f"**{_NOT_RUN}.** No machine with a GPU was at hand. Kernels are generated as CUDA source, compiled by nvcc "
        "for three architectures, and run by an emulator on a processor, which checks every access to memory. Nothing "
        "is known of their speed. Graphs of CUDA tensors run in PyTorch unless the environment has `RELAXGRAD_CUDA=1`.",
        "## What is verified, and how",
        table(
            [
                [
                    "schedules: element-wise, rows, columns, reductions",
                    "emulated",
                    "the importer's tests, forward and backward, by the float64 rule: "
                    "`pytest -m slow tests/bridge/devices/cuda`",
                ],
                [
                    "operators",
                    "emulated",
                    f"PyTorch's operator database, one sample an entry: {statuses} "
                    "(vacuous: the sample has no elements, or eager's values are zeros)",
                ],
                [
                    "models",
                    "emulated",
                    f"{trained} of {len(models)} train two steps with right gradients (table below)",
                ],
                ["machine code", "compiled", "every kernel of these models, by nvcc for sm_80, sm_90 and sm_100"],
                [
                    "products, convolutions, attention, sorts, scans, scatters",
                    "ATen's",
                    "run by ATen's CPU kernels here",
                ],
                [
                    "the emulator",
                    "tested",
                    "17 planted faults, each noticed: tests/bridge/devices/cuda/test_emulator.py",
                ],
                ["stream, allocator, one device of several", "not run", "the calls are TVM's and torch's own"],
                ["dropout's numbers on a GPU, CUDA graphs, a package to run elsewhere", "not there", ""],
                ["speed", "not measured", ""],
            ],
            ("what", "verified", "how"),
        ),
        "## Models",
        f"{_NOT_RUN}: float32, batch and sizes of the zoo, captured on the host, so that attention and random masks "
        f"are the host's ops. {on_tvm} of {on_tvm + fallback} calls that compute are native or library's on purpose. "
        "Registers and shared memory (bytes) are the most that a kernel takes on sm_90, as ptxas reports them; spills, "
        "the kernels on any of the architectures that spill.",
        table(list(map(_row, models)), _COLUMNS),
        "## What the emulator does not show",
        "It runs blocks one after the other and the threads of a block in turn: a race is found because each element "
        "knows who wrote and who read it since the last barrier, not because the order is unlucky. It does not model "
        "caches, fences between blocks, denormals, or CUDA's own elementary functions (the C library's stand in for "
        "them).",
    ]
    return "\n\n".join(parts) + "\n"


def _row(model: Mapping[str, Any]) -> list[str]:
    calls, kernels = model["calls"], model["kernels"]
    return [
        f"`{model['model']}`",
        model["status"] if not model["reason"] else f"{model['status']}: {cell(model['reason'])[:120]}",
        *(str(calls.get(kind, 0)) for kind in ("native", "library", "fallback")),
        str(kernels["count"]) if not model["failed"] else f"{kernels['count']}, {model['failed']} refused",
        *(str(kernels[name]) for name in ("registers", "shared", "spilled")),
    ]


def _stored(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """What the page keeps of a model's row."""
    of = row.get("kernels") or {}
    shown = of.get("sm_90") or []
    return {
        "model": name,
        "status": row.get("status", "no result"),
        "reason": row.get("reason") or row.get("error", ""),
        "calls": row.get("calls", {}),
        "failed": len(row.get("failed", ())),
        "kernels": {
            "count": len(shown),
            "registers": max((use["registers"] for use in shown), default=0),
            "shared": max((use["shared"] for use in shown), default=0),
            "spilled": max((sum(use["spilled"] > 0 for use in uses) for uses in of.values()), default=0),
        },
    }


def main(arguments: Sequence[str], root: Path) -> int:
    """Stores the rows and writes the page below `root`/docs; 0."""
    stored = root / "docs" / "results" / "cuda.json"
    if arguments:
        zoo, sweep = map(Path, arguments)
        rows = json.loads(zoo.read_text(encoding="utf-8"))
        samples = [json.loads(line) for line in sweep.read_text(encoding="utf-8").splitlines()]
        opinfo = Counter(sample["status"] for sample in samples if "entry" in sample)
        models = [_stored(name, row) for name, row in rows.items()]
        write_rows(stored, {"schema": SCHEMA, "versions": versions(), "opinfo": dict(opinfo), "models": models})
    write_text(root / "docs" / "cuda.md", page(json.loads(stored.read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
