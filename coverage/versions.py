# SPDX-License-Identifier: Apache-2.0
"""The bridge on several torch releases: probes and a short suite in a fresh environment for each; the result is stored.

`python -m relaxgrad.coverage.versions 2.11.0 2.12.1 [--folder DIR] [--index-url URL]` makes a virtual environment below
DIR for each release (kept, and used again), installs torch and this project into it, runs the suite there on the CPU,
and writes the rows into coverage/blockers/api_matrix.json, in place of rows of the same release. Some releases are CUDA
builds of several GB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .blockers.api_stability import MATRIX, read_matrix
from .harness.records import versions, write_json

ROOT = Path(__file__).resolve().parents[1]

#: Models of plain torch, one for each part of the bridge that releases have changed: broadcasts, dropout and layer
#: norm, convolution and batch norm's statistics, attention, recurrent layers.
MODELS = ("seed-example", "mlp", "cnn-bn", "transformer-encoder", "lstm", "gru")
STEPS = 3
TIMEOUT = 1800.0  # seconds for the suite of one release
SCHEMA = 1


def suite() -> dict[str, Any]:
    """Probes and training of MODELS with the torch of this process: one row of the matrix. About a minute."""
    from relaxgrad.bridge import torch_api

    from .harness.train_record import Status
    from .harness.training import train_model

    probes = torch_api.probe_all()
    row: dict[str, Any] = {
        "torch": versions()["torch"],
        "apache-tvm": versions()["apache-tvm"],
        "probes": len(probes),
        "probes_failed": [f"{p.name}: {p.detail}" for p in probes if not p.ok],
        "trained": [],
        "tests_failed": [],
    }
    for model in MODELS:
        try:
            record = train_model(model, STEPS)
            failed = "" if record.status is Status.TRAINED else record.reason
        except Exception as error:  # another torch may raise anything
            failed = f"{type(error).__name__}: {error}".splitlines()[0]
        if failed:
            row["tests_failed"].append(f"{model}: {failed}"[:300])
        else:
            row["trained"].append(model)
    return row


def measure(release: str, folder: Path, index_url: str | None = None) -> dict[str, Any]:
    """The row of one release: its environment is made when it is missing. What fails there is in the row."""
    environment = folder / f"torch-{release}"
    python = str(environment / "bin" / "python")
    index = ["--index-url", index_url] if index_url else []
    wanted = [["setuptools>=77", f"torch=={release}", *index], [str(ROOT)]]
    if (environment / "ready").exists():  # only this project may have changed since
        wanted = [["--force-reinstall", "--no-deps", str(ROOT)]]
    else:
        venv.create(environment, with_pip=True, clear=True)
    for packages in wanted:
        command = [python, "-m", "pip", "install", "-q", *packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            return {"torch": release, "not_installed": lines[-1] if lines else "pip said nothing"}
    (environment / "ready").touch()
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "row.json"
        code = "import json, sys; from relaxgrad.coverage import versions as v; "
        code += "json.dump(v.suite(), open(sys.argv[1], 'w'))"
        clean = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"}
        clean.pop("PYTHONPATH", None)
        try:
            done = subprocess.run(
                [python, "-P", "-c", code, str(output)],
                capture_output=True, text=True, check=False, env=clean, timeout=TIMEOUT, cwd=scratch,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"torch": release, "not_run": f"no result within {TIMEOUT:.0f} s"}
        if done.returncode or not output.exists():
            lines = done.stderr.strip().splitlines()
            return {"torch": release, "not_run": lines[-1] if lines else f"exit code {done.returncode}"}
        row: dict[str, Any] = json.loads(output.read_text())
    return row


def main(arguments: Sequence[str]) -> int:
    """Measures the releases and stores their rows; 0 where each runs without a fault."""
    parser = ArgumentParser(
        prog="python -m relaxgrad.coverage.versions", description="The bridge on other torch releases."
    )
    parser.add_argument("release", nargs="+", help="as 2.12.1")
    parser.add_argument("--folder", type=Path, default=Path("build/versions"), help="of the environments")
    parser.add_argument("--index-url", help="for torch, as PyTorch's CPU index")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    good = True
    for release in given.release:
        row = measure(release, given.folder.resolve(), given.index_url)
        rows = [r for r in read_matrix() if r["torch"].split("+")[0] != release] + [row]
        rows.sort(key=lambda r: [int(part) for part in r["torch"].split("+")[0].split(".")])
        write_json(MATRIX, {"schema": SCHEMA, "versions": rows})
        print(json.dumps(row))
        good &= bool(row.get("probes")) and not row["probes_failed"] and not row["tests_failed"]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
