# SPDX-License-Identifier: Apache-2.0
"""Real workers on a tiny model: validation finds what is planted, and what a candidate tells is true."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from relaxgrad.benchmarks.candidates import Candidate
from relaxgrad.benchmarks.record import Settings, Status
from relaxgrad.benchmarks.reference import _adamw
from relaxgrad.benchmarks.run import bench_model
from relaxgrad.bridge import torch_api
from relaxgrad.bridge.errors import UserError

CODE = """\
import numpy as np
import torch
from torch import nn

def tiny():
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    return network, torch.randn(16, 6), lambda output: output.square().mean()

class Draws(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 2)

    def forward(self, x):
        rows = np.random.permutation(16)[:8]
        return self.linear(x[torch.from_numpy(rows)])

def draws():
    torch.manual_seed(3)
    inputs = torch.from_numpy(np.random.randn(16, 6)).float()  # and so numpy's generator has moved on
    return Draws(), inputs, lambda output: output.square().mean()

def same(gm, inputs):
    return gm.forward

def off(gm, inputs):
    return lambda *args: tuple(out * 1.001 for out in gm(*args))

def refuses(gm, inputs):
    raise RuntimeError("no kernel for this")
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "bench_of_the_test.py").write_text(CODE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return f"{tmp_path / 'bench_of_the_test.py'}:tiny"


def test_every_candidate_is_validated_on_the_same_step(tiny: str) -> None:
    names = [f"bench_of_the_test:{name}" for name in ("same", "off", "refuses")]
    settings = Settings((*names, "eager"), protocol="step", rounds=4, warm_up=1)
    record = bench_model(tiny, settings, 300.0, start_up=False, profile=True)
    assert record.reason == ""
    same, off, refuses = (record.candidates[name] for name in names)
    own, eager = record.candidates["relaxgrad"], record.candidates["eager"]
    assert (same.status, off.status, refuses.status) == (Status.TIMED, Status.WRONG, Status.FAILED)
    assert "error too large" in off.reason
    assert off.step is None
    assert "no kernel for this" in refuses.reason
    for found in (own, same, eager):
        assert found.status is Status.TIMED, found.reason
        counts = {what: validation.compared for what, validation in found.validation.items()}
        assert counts == {"loss": 1, "gradients": 6, "buffers": 3, "parameters": 6}  # the buffers of the batch norm
        assert found.step is not None
        assert len(found.step.rounds) == 4
        assert found.recompiles == 0
        assert found.memory is not None
    assert own.cold is not None
    assert own.cold.backend is not None
    assert 0 < own.cold.backend < own.cold.first
    assert own.calls["library"] > 0
    assert eager.graphs == 0
    assert own.graphs >= 1
    assert set(record.ratios) == {names[0], "eager"}
    assert record.profile is not None
    assert record.profile["step_seconds"] > 0
    assert all(kernel["calls"] >= 1 for kernel in record.profile["kernels"])
    assert {"library", "native"} <= record.profile["by_kind"].keys()
    assert record.profile["copy_rate"] > 1e8


def test_a_model_that_does_not_run_in_eager(tiny: str) -> None:
    path = tiny.removesuffix(":tiny")
    Path(path).write_text(CODE.replace("nn.Linear(6, 8)", "nn.Linear(7, 8)"))
    record = bench_model(tiny, Settings(("eager",)), 300.0)
    assert record.user_error
    assert "a step in eager raised RuntimeError" in record.reason


def test_the_first_step_of_adamw_by_its_formula() -> None:
    start, gradient = torch.randn(5, 3), torch.randn(5, 3)
    parameter = nn.Parameter(start.clone())
    parameter.grad = gradient.clone()
    torch.optim.AdamW([parameter], lr=1e-3).step()
    exact = _adamw({"w": start, "unused": start}, {"w": gradient, "unused": None}, torch.float64)
    rounded = _adamw({"w": start}, {"w": gradient}, torch.float32)
    assert torch.allclose(parameter.detach().double(), exact["w"], atol=3e-7, rtol=0)
    assert torch.allclose(rounded["w"].double(), exact["w"], atol=3e-7, rtol=0)
    assert torch.equal(exact["unused"], start.double())


def test_a_candidate_that_is_no_backend() -> None:
    with pytest.raises(UserError, match=r"torch\.compile has no such backend; known: aot_eager, "):
        Candidate("nothing").load()


def test_a_model_that_draws_with_numpy_draws_the_same_for_all(tiny: str) -> None:
    settings = Settings(("eager",), protocol="fwd_bwd", rounds=1, warm_up=1)
    record = bench_model(tiny.replace(":tiny", ":draws"), settings, 300.0, start_up=False)
    assert {name: (c.status, c.reason) for name, c in record.candidates.items()} == {
        "relaxgrad": (Status.TIMED, ""), "eager": (Status.TIMED, ""),
    }  # fmt: skip
    worst = record.candidates["relaxgrad"].validation["gradients"].worst
    assert worst is not None
    assert worst["allowed"] < 1e-4, "a reference of other draws forgives everything"


def test_relaxgrad_that_compiled_nothing_says_so() -> None:
    candidate = Candidate("relaxgrad")
    torch_api.dynamo_clear_counters()  # graph breaks of other tests would be the reason
    with candidate.recording():
        assert candidate.did_nothing() == "no graph was compiled and run by relaxgrad"
        torch.compiler.reset()
        x = torch.ones(3, requires_grad=True)
        with torch.no_grad():
            candidate.compile(lambda x: x.cos().sum())(x)  # as an optimizer's step is
        assert candidate.did_nothing() != ""
        candidate.compile(lambda x: x.sin().sum())(x).backward()
        assert candidate.did_nothing() == ""
        seconds = candidate.backend_seconds()
        assert seconds is not None
        assert seconds > 0
    assert Candidate("eager").backend_seconds() is None


@pytest.mark.slow
def test_inductor_beside_relaxgrad_with_cold_and_warm_caches() -> None:
    record = bench_model("mlp", Settings(("inductor",), rounds=4, warm_up=1), 900.0)
    own, inductor = record.candidates["relaxgrad"], record.candidates["inductor"]
    assert own.status is Status.TIMED, own.reason
    assert inductor.status is Status.TIMED, inductor.reason
    assert inductor.own_random  # dropout masks of its own
    assert not own.own_random
    for found in (own, inductor):
        assert found.cold is not None
        assert found.warm is not None, found.warm_reason
        assert found.cold.backend is not None
        assert found.warm.backend is not None
        assert 0 < found.cold.backend < found.cold.first
        assert found.warm.backend < found.cold.backend / 2
        assert found.graphs == 1
