# SPDX-License-Identifier: Apache-2.0
"""One blocker of an audit, or the path through ONNX, measured anew after a mend of what measures it.

`python -m relaxgrad.coverage.audit.again DIR "in-place and optimizer state" [MODEL...]` replaces the finding in the
records below DIR (of the named models, or of all that a level other than clear was found for) and leaves the rest.
With `onnx` it replaces what was found on that path (of all models that were sent down it).
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from relaxgrad.bridge.errors import UserError

from ..blockers.finding import Blocker, Level
from ..harness.process import State, run_tasks
from ..sweeps.records import write_records
from .many import FILE, read_audit

TASK = "relaxgrad.coverage.audit.again:blocker_task"
ONNX_TASK = "relaxgrad.coverage.audit.again:onnx_task"
MEASURED = (Blocker.DYNAMIC_SHAPES, Blocker.IN_PLACE)
ONNX = "onnx"


def measure_again(
    path: Path, blocker: Blocker, models: Sequence[str], jobs: int, time_limit: float = 600.0
) -> list[str]:
    """Measures `blocker` of these models of an audit's file anew and writes the file; a line for each model.

    Without names: of those whose finding is not clear. Raises UserError for a file that is no audit, or lacks a model.
    """
    head, there = _read(path, models)
    names = list(models) or [n for n, r in there.items() if r["findings"].get(blocker, {}).get("level") != Level.CLEAR]
    arguments = [{"model": n, "seed": head["settings"]["seed"], "blocker": blocker.value} for n in names]
    told = []
    for name, outcome in zip(names, run_tasks(TASK, arguments, time_limit, jobs), strict=True):
        if outcome.state is not State.OK or outcome.value is None:
            told.append(f"{name}: left as it was: {outcome.message}")
            continue
        new, old = outcome.value, there[name]["findings"].get(blocker.value, {})
        # What only the training run before it can tell stays.
        new["numbers"] = {k: v for k, v in old.get("numbers", {}).items() if k not in new["numbers"]} | new["numbers"]
        there[name]["findings"][blocker.value] = new
        told.append(f"{name}: {old.get('level', 'none')} became {new['level']}: {new['headline']}")
    write_records(path, head, list(there.values()))
    return told


def onnx_again(path: Path, models: Sequence[str], jobs: int, time_limit: float = 600.0) -> list[str]:
    """Sends the graphs of these models of an audit's file down the path through ONNX again and writes the file; a line
    for each model. Without names: of those that were. Raises UserError as `measure_again`."""
    head, there = _read(path, models)
    names = list(models) or [name for name, record in there.items() if record["onnx"] is not None]
    arguments = [{"model": name, "seed": head["settings"]["seed"]} for name in names]
    told = []
    for name, outcome in zip(names, run_tasks(ONNX_TASK, arguments, time_limit, jobs), strict=True):
        if outcome.value is None:
            told.append(f"{name}: left as it was: {outcome.message}")
            continue
        there[name]["onnx"] = outcome.value["graphs"]
        told.append(f"{name}: {', '.join(graph['tvm'] for graph in outcome.value['graphs'])}")
    write_records(path, head, list(there.values()))
    return told


def _read(path: Path, models: Sequence[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Head and records by model of an audit's file. Raises UserError for a file that is none, or lacks a model."""
    head, records = read_audit(path)
    there = {record["model"]: record for record in records}
    if missing := [name for name in models if name not in there]:
        raise UserError(f"{path} has no record of {', '.join(missing)}")
    return head, there


def onnx_task(arguments: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """For the process runner. Arguments: model, seed. {"graphs": the OnnxRecord of each graph}."""
    from relaxgrad.bridge.torch_api import numpy_draws_as_in_eager

    from ..harness.models import load_problem
    from ..onnx_path import run_onnx
    from ..upstream_importer import keep_run

    runs: list[Any] = []
    with numpy_draws_as_in_eager():
        load_problem(arguments["model"], arguments["seed"]).capture(keep_run(runs))
        return {"graphs": run_onnx(runs)}


def blocker_task(arguments: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """For the process runner. Arguments: model, seed, blocker. The finding."""
    from relaxgrad.bridge.torch_api import numpy_draws_as_in_eager

    from ..blockers import dynamic_shapes, in_place
    from ..harness.models import load_problem

    def build() -> Any:
        return load_problem(arguments["model"], arguments["seed"])

    with numpy_draws_as_in_eager():
        if arguments["blocker"] == Blocker.DYNAMIC_SHAPES:
            return dynamic_shapes.measure(build, arguments["seed"]).to_json()
        problem = build()
        try:
            captured = problem.capture()
        except UserError:
            captured = []
        finding = in_place.measure(build, captured, []).to_json()
        finding["numbers"].pop("layout_copies_a_run")  # of training, which did not run here
        return finding


def main(arguments: Sequence[str]) -> int:
    """The command; 0."""
    parser = ArgumentParser(prog="python -m relaxgrad.coverage.audit.again")
    parser.add_argument("folder", type=Path)
    parser.add_argument("blocker", choices=[*(blocker.value for blocker in MEASURED), ONNX])
    parser.add_argument("model", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args(arguments)
    path = given.folder / FILE
    if given.blocker == ONNX:
        told = onnx_again(path, given.model, given.jobs)
    else:
        told = measure_again(path, Blocker(given.blocker), given.model, given.jobs)
    print("\n".join(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
