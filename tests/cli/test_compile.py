# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad compile`: code for a device that is not there, and what falls back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from typer.testing import CliRunner

from relaxgrad.cli.main import app
from tests.expected_skips import Lacking, skip

runner = CliRunner()


def test_a_model_becomes_cuda_source(tmp_path: Path) -> None:
    done = runner.invoke(app, ["compile", "seed-example", "-o", str(tmp_path), "--source-only"])
    assert done.exit_code == 0, done.output
    assert "compiled for cuda:sm_90, not run there" in done.output
    rows = json.loads((tmp_path / "kernels.json").read_text())
    assert [row["graph"] for row in rows] == ["0-forward", "1-backward"]
    for row in rows:
        assert row["calls"]["native"] > 0
        assert row["reasons"] == []
        source = (tmp_path / f"{row['graph']}.cu").read_text()
        assert 'extern "C" __global__' in source
        assert "threadIdx.x" in source
    assert not list(tmp_path.glob("*.bin"))


def test_machine_code_comes_with_what_each_kernel_takes(tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        skip(Lacking.NVCC, "no nvcc on PATH")
    done = runner.invoke(app, ["compile", "seed-example", "-o", str(tmp_path), "--target", "cuda:sm_80", "--dynamic"])
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "kernels.json").read_text())
    for row in rows:
        assert (tmp_path / f"{row['graph']}.bin").stat().st_size == row["bytes"] > 0
        assert all(usage["registers"] > 0 and usage["spilled"] == 0 for usage in row["kernels"].values())


def test_the_processor_is_a_target_too(tmp_path: Path) -> None:
    done = runner.invoke(app, ["compile", "seed-example", "-o", str(tmp_path), "--target", "llvm"])
    assert done.exit_code == 0, done.output
    assert "define" in (tmp_path / "0-forward.ll").read_text()


def test_a_wrong_target_is_one_line(tmp_path: Path) -> None:
    done = runner.invoke(app, ["compile", "mlp", "-o", str(tmp_path), "--target", "cuda:90"])
    assert done.exit_code != 0
    assert "an architecture such as sm_80" in str(done.exception)
