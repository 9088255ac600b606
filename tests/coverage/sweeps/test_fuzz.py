# SPDX-License-Identifier: Apache-2.0
"""The fuzzer: its graphs are valid and varied, a planted fault is found, shrunk and printed as a script."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from relaxgrad.coverage.harness.process import Outcome, State
from relaxgrad.coverage.sweeps.check import GOOD, Checked, Status
from relaxgrad.coverage.sweeps.fuzz import Program, check_program, fuzz, run_fuzz, script, write_program
from relaxgrad.coverage.sweeps.fuzz_ops import templates


def written(seed: int) -> Program:
    return write_program(random.Random(seed).choice, KINDS)


KINDS = templates()


def test_graphs_are_valid_and_varied() -> None:
    used: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for seed in range(300):
        program = written(seed)
        tensors = program.tensors()
        outputs = program.function()(*tensors)
        assert all(isinstance(o, torch.Tensor) for o in outputs)
        used.update(program.used)
        for t in tensors:
            seen[str(t.dtype)] += 1
            seen["0-d"] += t.dim() == 0
            seen["size 0"] += t.numel() == 0
            seen["size 1"] += 1 in t.shape
            seen["strided"] += not t.is_contiguous()
            seen["offset"] += t.storage_offset() > 0
        seen["dynamic"] += program.dynamic
    assert len(used) > 0.9 * len(KINDS), {k.name for k in KINDS} - used.keys()
    wanted = (
        "torch.float32",
        "torch.float64",
        "torch.int64",
        "torch.bool",
        "0-d",
        "size 0",
        "size 1",
        "strided",
        "offset",
    )
    assert all(seen[key] > 5 for key in (*wanted, "dynamic")), seen


def test_the_pointwise_ops_come_from_the_registry() -> None:
    names = {kind.name for kind in KINDS}
    assert {"aten.sin.default", "aten.atan2.default", "aten.eq.Tensor", "aten.bitwise_xor.Tensor"} <= names
    assert not any(word in name for name in names for word in ("empty", "rand", "normal", "bernoulli"))


def test_a_few_graphs_pass_through_the_bridge() -> None:
    for seed in range(6):
        checked = check_program(written(seed))
        assert checked.status in GOOD, f"{checked.detail}\n{written(seed).source()}"


def is_wrong(program: Program) -> Checked:
    """Takes every graph with a softmax for wrong."""
    return Checked(Status.WRONG if any("softmax" in line for line in program.lines) else Status.PASS, "planted")


def test_a_failing_graph_is_shrunk() -> None:
    events: list[dict[str, Any]] = []
    found = fuzz(400, 5, events.append, is_wrong)
    assert found["failure"] is not None
    assert found["failure"]["detail"] == "wrong: planted"
    lines = [line for line in found["failure"]["script"].splitlines() if line.startswith("    v")]
    assert len(lines) == 1
    assert "softmax" in lines[0]
    assert 1 <= found["graphs"] <= 400
    assert len(events) >= found["graphs"]
    assert fuzz(20, 5, events.append, lambda program: Checked(Status.PASS)) | {"used": {}} == {
        "graphs": 20,
        "used": {},
        "failure": None,
    }


def test_the_script_stands_alone(tmp_path: Path) -> None:
    right = Program(("torch.tensor([1.0, 2.0]).reshape([2])",), ("v0 = x0.sin()",), ("v0", "x0"), False)
    file = tmp_path / "right.py"
    file.write_text(script(right, "out: a fault", 7))
    assert "seed 7" in file.read_text()
    run = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.endswith("no difference\n")
    file.write_text(
        file.read_text().replace('backend="relaxgrad"', "backend=lambda gm, _: lambda *a: [t * 2 for t in gm(*a)]")
    )
    run = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 1
    assert "AssertionError" in run.stderr


def test_a_graph_that_ends_its_process_is_a_failure_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def run_task(task: str, arguments: dict[str, Any], timeout: float, on_event: Any) -> Outcome:
        asked.append(arguments)
        on_event({"event": "graph", "script": f"script {len(asked)}"})
        if len(asked) == 1:
            return Outcome(State.CRASHED, message="killed by SIGSEGV")
        if len(asked) == 2:
            return Outcome(State.CRASHED, output="Timeout (0:00:09)!")
        return Outcome(State.OK, {"graphs": arguments["count"], "used": {"sum": 2}, "failure": None})

    monkeypatch.setattr("relaxgrad.coverage.sweeps.fuzz.run_task", run_task)
    result = run_fuzz(10, 3, 9.0, lambda state: None)
    assert [f["script"] for f in result["failures"]] == ["script 1", "script 2"]
    assert [f["detail"] for f in result["failures"]] == ["crash: killed by SIGSEGV", "timeout: no result within 9 s"]
    assert result["graphs"] == 10
    assert result["used"] == {"sum": 2}
    assert [a["seed"] for a in asked] == [30000, 30001, 30002]
    assert asked[-1]["count"] == 8
