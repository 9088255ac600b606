# SPDX-License-Identifier: Apache-2.0
"""Graph samples there and back: `python -m relaxgrad.coverage.round_trip [MODEL...] [-o DIR] [--backend NAME,...]`.

Saves the graphs of each model as samples in one process (joint, joint without decomposition, forward, backward, and the
groups that fuse into a kernel) and replays them in another one for each backend, where eager must be bit-equal and a
compiler bit-equal or right by the float64 rule. Without a model: those that `relaxgrad report` takes. Exit code 1 where
an output is neither.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from relaxgrad.bridge.errors import UserError

from .harness.models import check_name
from .harness.process import run_task
from .harness.records import write_json
from .zoo import REPORTED

BACKENDS = ("eager", "relaxgrad", "inductor")
SECONDS = 900.0  # for one model and one backend
_HERE = "relaxgrad.coverage.round_trip"


def save_task(arguments: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """For the process runner: saves the samples of `model` below `folder`; {"samples": their folders}."""
    from relaxgrad.coverage import samples

    from .harness.models import load_problem
    from .sample_graphs import Found, fused_graphs, joint_graph, step_graphs

    def problem() -> Any:
        return load_problem(arguments["model"])

    pair = step_graphs(problem())
    found: list[tuple[str, Found]] = [
        (f"joint-{table}", joint_graph(problem(), table)) for table in ("core_aten", "none")
    ]
    found += [(f"{one.graph.kind}-{number}", one) for number, one in enumerate(pair) if one.inputs is not None]
    found += [(f"fused-{one.part}", one) for one in fused_graphs(pair)]
    for name, one in found:
        samples.save(one.graph, one.inputs or [], Path(arguments["folder"]) / name, one.part)
    return {"samples": [name for name, _ in found]}


def replay_task(arguments: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """For the process runner: replays `samples` below `folder` on `backend`; {"outputs": counts by verdict, "failed":
    sample -> what was wrong}."""
    from relaxgrad.coverage import samples

    from .harness.models import describe
    from .sample_graphs import verdicts

    counts: Counter[str] = Counter()
    failed: dict[str, str] = {}
    for name in arguments["samples"]:
        try:
            loaded = samples.load(Path(arguments["folder"]) / name)
            results = samples.replay(loaded, arguments["backend"])
            found = verdicts(loaded, results, arguments["backend"])
        except Exception as error:  # whatever a backend raises is the finding
            failed[name] = describe(error)
            continue
        counts.update(verdict or "wrong" for verdict in found)
        wrong = [f"{r.role} {r.target}".rstrip() for r, v in zip(results, found, strict=True) if not v]
        if wrong:
            failed[name] = f"{'not bit-equal' if arguments['backend'] == 'eager' else 'wrong'}: {', '.join(wrong)}"
    return {"outputs": dict(counts), "failed": failed}


def round_trip(model: str, folder: Path, backends: Sequence[str], say: Callable[[str], None]) -> dict[str, Any]:
    """Saves and replays one model: its record. What fails in a process is in it."""
    start = time.monotonic()
    saved = run_task(f"{_HERE}:save_task", {"model": model, "folder": str(folder)}, SECONDS)
    names = (saved.value or {}).get("samples", [])
    record: dict[str, Any] = {"model": model, "samples": len(names), "error": saved.message, "backends": {}}
    record["seconds"] = round(time.monotonic() - start, 1)
    say(f"{model}: {len(names)} samples saved in {record['seconds']:.0f} s" + f" {saved.message}".rstrip())
    for backend in backends if names else ():
        arguments = {"folder": str(folder), "samples": names, "backend": backend}
        done = run_task(f"{_HERE}:replay_task", arguments, SECONDS)
        found = done.value or {"outputs": {}, "failed": {"all": done.message}}
        record["backends"][backend] = found | {"seconds": round(done.seconds, 1)}
        told = ", ".join(f"{count} {verdict}" for verdict, count in found["outputs"].items())
        say(f"{model} on {backend}: outputs: {told or 'none'}; {done.seconds:.0f} s")
        for name, why in found["failed"].items():
            say(f"  {name}: {why}")
    return record


def passed(record: dict[str, Any]) -> bool:
    """Whether every sample of a model came through on every backend."""
    return not record["error"] and not any(found["failed"] for found in record["backends"].values())


def summary(records: Sequence[dict[str, Any]]) -> list[str]:
    """One line for the samples, one for each backend."""
    total = sum(record["samples"] for record in records)
    lines = [f"{total} samples of {len(records)} models"]
    for backend in dict.fromkeys(name for record in records for name in record["backends"]):
        found = [record["backends"][backend] for record in records if backend in record["backends"]]
        counts: Counter[str] = Counter()
        for one in found:
            counts.update(one["outputs"])
        failed = sum(len(one["failed"]) for one in found)
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        seconds = sum(one["seconds"] for one in found)
        lines.append(f"{backend}: {counts.total()} outputs: {told}; {failed} samples failed; {seconds:.0f} s")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Runs the models and prints what came of it; 1 where a sample did not come through."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(REPORTED))
    parser.add_argument("-o", "--output", type=Path, help="keep the samples and round_trip.json here")
    parser.add_argument("--backend", default="eager,relaxgrad", help=f"of {', '.join(BACKENDS)}")
    given = parser.parse_args(arguments)
    backends = given.backend.split(",")
    if unknown := [name for name in backends if name not in BACKENDS]:
        raise UserError(f"no backend {unknown[0]!r}; backends: {', '.join(BACKENDS)}")
    for model in given.models:
        check_name(model)
    if given.output is None:
        with tempfile.TemporaryDirectory() as folder:
            return _run(given.models, Path(folder), backends)
    given.output.mkdir(parents=True, exist_ok=True)
    return _run(given.models, given.output, backends)


def _run(models: Sequence[str], folder: Path, backends: Sequence[str]) -> int:
    records = []
    for model in models:
        records.append(
            round_trip(model, folder / model.replace("/", "-"), backends, lambda text: print(text, flush=True))
        )
        write_json(folder / "round_trip.json", {"models": records})
    print("\n".join(summary(records)))
    return 0 if all(map(passed, records)) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sys.exit(f"error: {error}")
