# SPDX-License-Identifier: Apache-2.0
"""The trial itself: `python -m relaxgrad.coverage.trial.run OUT.json` (about 40 minutes on one core).

Each model is a task in a worker process; OUT.json is written after each, and a model that it already has is not tried
again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..harness.process import run_task
from ..harness.records import versions, write_json

PLANTED = ("perf-gpt2", "perf-vit", "perf-resnet", "perf-convnext", "perf-unet", "perf-dlrm")
PLANTED_SEED = 1
MOST = 10  # faults of a kind in a model
LEGITIMATE = (
    "perf-gpt2", "perf-bert", "perf-llama", "perf-t5", "perf-vit", "perf-resnet", "perf-convnext", "perf-lstm",
    "perf-mlp", "perf-dlrm", "perf-unet", "perf-cnn",
)  # fmt: skip
SEEDS = (1, 2, 3)
TIME_LIMIT = 1800.0

Emit = Callable[[dict[str, Any]], None]


def planted_task(arguments: dict[str, Any], emit: Emit) -> dict[str, Any]:
    """For the process runner. Arguments: model."""
    from .planted import try_faults

    return {"rows": try_faults(arguments["model"], PLANTED_SEED, MOST)}


def legitimate_task(arguments: dict[str, Any], emit: Emit) -> dict[str, Any]:
    """For the process runner. Arguments: model."""
    from .legitimate import try_legitimate

    return {"rows": [row for seed in SEEDS for row in try_legitimate(arguments["model"], seed)]}


def main(arguments: list[str]) -> int:
    """0 where every task ran, otherwise 1."""
    path = Path(arguments[0])
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"planted": {}, "legitimate": {}}
    failed = 0
    for part, models in (("planted", PLANTED), ("legitimate", LEGITIMATE)):
        for model in models:
            if model in found[part]:
                continue
            outcome = run_task(f"relaxgrad.coverage.trial.run:{part}_task", {"model": model}, TIME_LIMIT)
            if outcome.value is None:
                failed += 1
                print(f"{part}, {model}: {outcome.message}", file=sys.stderr)
                continue
            found[part][model] = outcome.value["rows"]
            write_json(path, found | {"schema": 1, "versions": versions()})
            print(f"{part}, {model}: {len(outcome.value['rows'])} rows, {outcome.seconds:.0f} s", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
