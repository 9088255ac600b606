# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.bridge.devices.cuda.zoo OUT.json [--compile] MODEL...`: models of the zoo on the emulated GPU.

Two training steps of each, validated by the float64 rule (coverage/harness); with `--compile` nothing is run, and the
graphs are captured on the host and compiled. The CUDA source of the kernels is compiled by nvcc for three
architectures, and what ptxas says of each kernel is kept. A process a model.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
SECONDS = 900
TRAIN, COMPILE = "--one-trained", "--one-compiled"


def main(out: Path, names: list[str], how: str) -> None:
    rows = json.loads(out.read_text()) if out.exists() else {}
    for name in names:
        if name in rows:
            continue
        start = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, "-m", __spec__.name, how, name],
                capture_output=True, text=True, timeout=SECONDS, check=False,
            )  # fmt: skip
            last = done.stdout.strip().splitlines()
            row = json.loads(last[-1]) if done.returncode == 0 and last else {"error": done.stderr.strip()[-400:]}
        except subprocess.TimeoutExpired:
            row = {"error": f"no result within {SECONDS} s"}
        rows[name] = row | {"seconds": round(time.perf_counter() - start, 1)}
        kept = out.with_suffix(".tmp")
        kept.write_text(json.dumps(rows, indent=1))
        kept.replace(out)
        print(name, {k: v for k, v in row.items() if k != "kernels"}, flush=True)


def trained(name: str) -> dict[str, Any]:
    import tests.bridge.devices.cuda.emulator.plugin  # noqa: F401
    from relaxgrad.coverage.harness.training import Relaxgrad, train_model
    from tests.bridge.devices.cuda import emulator

    sources = emulator.sources = []
    record = train_model(name, steps=2, compiler=Relaxgrad(target="cuda"))
    calls: Counter[str] = Counter()
    for graph in record.graph_details:
        calls.update({str(kind): count for kind, count in graph["calls"].items()})
    verdict = {
        "status": str(record.status),
        "reason": record.reason[:300],
        "reasons": [r[:200] for r in record.reasons],
    }
    return {**verdict, "calls": calls, **_assembled(sources)}


def compiled(name: str) -> dict[str, Any]:
    from relaxgrad.bridge.capture import capture_pair
    from relaxgrad.bridge.compile.cross import cross_compile
    from relaxgrad.bridge.devices.cuda import DEVICE
    from relaxgrad.bridge.targets import resolve_target
    from relaxgrad.coverage.harness.models import load_problem

    problem = load_problem(name)
    loss = problem.loss if problem.compile_loss else None
    target = resolve_target("cuda:sm_90", to_run=False)
    graphs = capture_pair(problem.module, problem.args, problem.kwargs, loss=loss)
    found = [cross_compile(graph, DEVICE, target) for graph in graphs]
    calls: Counter[str] = Counter()
    for graph in found:
        calls.update({str(kind): count for kind, count in graph.calls.items()})
    reasons = [str(reason)[:200] for graph in found for reason in graph.reasons]
    sources = [graph.source for graph in found if graph.source]
    return {"status": "compiled", "reason": "", "reasons": reasons, "calls": calls, **_assembled(sources)}


def _assembled(sources: list[str]) -> dict[str, Any]:
    """What each kernel takes on each architecture, and what nvcc refused."""
    from relaxgrad.bridge.devices.cuda.binary import compile_cubin

    kernels: dict[str, list[dict[str, Any]]] = {arch: [] for arch in ARCHITECTURES}
    failed: list[str] = []
    for source in sources:
        for arch in ARCHITECTURES:
            try:
                kernels[arch] += [{"name": k, **asdict(use)} for k, use in compile_cubin(source, arch)[1].items()]
            except RuntimeError as error:
                failed.append(str(error)[:300])
    return {"failed": failed, "kernels": kernels}


if __name__ == "__main__":
    if sys.argv[1] in (TRAIN, COMPILE):
        print(json.dumps((trained if sys.argv[1] == TRAIN else compiled)(sys.argv[2])))
    else:
        models = [name for name in sys.argv[2:] if name != "--compile"]
        main(Path(sys.argv[1]), models, COMPILE if "--compile" in sys.argv else TRAIN)
