# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.bridge.devices.cuda.zoo OUT.json MODEL...`: models of the zoo on the emulated GPU.

Two training steps of each, validated by the float64 rule (coverage/harness); the CUDA source of its kernels is compiled
by nvcc for three architectures, and what ptxas says of each kernel is kept. A process a model.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
SECONDS = 900


def main(out: Path, names: list[str]) -> None:
    rows = json.loads(out.read_text()) if out.exists() else {}
    for name in names:
        if name in rows:
            continue
        start = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, "-m", __spec__.name, "--one", name],
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


def one(name: str) -> dict[str, Any]:
    import tests.bridge.devices.cuda.emulator.plugin  # noqa: F401
    from relaxgrad.bridge.devices.cuda.binary import compile_cubin
    from relaxgrad.coverage.harness.training import Relaxgrad, train_model
    from tests.bridge.devices.cuda import emulator

    sources = emulator.sources = []
    record = train_model(name, steps=2, compiler=Relaxgrad(target="cuda"))
    calls: dict[str, int] = {}
    for graph in record.graph_details:
        for kind, count in graph["calls"].items():
            calls[str(kind)] = calls.get(str(kind), 0) + count
    verdict = {
        "status": str(record.status),
        "reason": record.reason[:300],
        "reasons": [r[:200] for r in record.reasons],
    }
    kernels: dict[str, list[dict[str, int]]] = {arch: [] for arch in ARCHITECTURES}
    failed: list[str] = []
    for source in sources if os.environ.get("RELAXGRAD_CUBINS", "1") == "1" else []:
        for arch in ARCHITECTURES:
            try:
                kernels[arch] += [{"name": k, **asdict(use)} for k, use in compile_cubin(source, arch)[1].items()]
            except RuntimeError as error:
                failed.append(str(error)[:300])
    return {**verdict, "calls": calls, "failed": failed, "kernels": kernels}


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        print(json.dumps(one(sys.argv[2])))
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
