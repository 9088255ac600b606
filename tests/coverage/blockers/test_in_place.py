# SPDX-License-Identifier: Apache-2.0
"""Blocker 4: writes are found with their lines, the optimizer step and a saved state are really compared."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from relaxgrad.bridge.capture import capture_pair
from relaxgrad.coverage.blockers import in_place
from relaxgrad.coverage.blockers.finding import Level
from relaxgrad.coverage.harness.problem import Problem


class Counting(nn.Module):
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        self.seen.add_(y.detach().mean(0))  # the line that writes
        return y.square().mean()


def build() -> Problem:
    torch.manual_seed(0)
    return Problem(Counting(), (torch.randn(4, 3),))


def measured() -> Any:
    problem = build()
    return in_place.measure(build, capture_pair(problem.module, problem.args), [])


def test_a_written_buffer_has_its_line_and_its_bytes() -> None:
    finding = measured()
    assert finding.level is Level.CLEAR, finding.headline
    assert (finding.numbers["mutated"], finding.numbers["mutated_bytes"]) == (["seen"], 12)
    (found,) = finding.evidence
    assert "# the line that writes" in found.where
    optimizer = finding.numbers["optimizer"]
    assert optimizer["compiled_graphs"] >= 1
    assert optimizer["calls_by_kind"]["native"] > 0
    assert optimizer["compared"] >= 2
    assert optimizer["failed"] == []
    assert finding.numbers["resumed"]["seen"] == finding.numbers["resumed"]["expected"]
    assert len(set(finding.numbers["resumed"]["seen"])) == in_place.STEPS


def test_an_optimizer_that_drifts_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    real = in_place.compile_on_tvm

    def planted(function: Any) -> Any:
        compiled = real(function)
        if isinstance(function, nn.Module):
            return compiled

        def step() -> None:
            compiled()
            function.__self__.param_groups[0]["params"][0].data.mul_(1.001)

        return step

    monkeypatch.setattr(in_place, "compile_on_tvm", planted)
    finding = measured()
    assert finding.level is Level.BLOCKS
    assert "gives other parameters" in finding.headline


def test_an_optimizer_that_is_not_compiled_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "compile_on_tvm", lambda function: function)
    assert "was not compiled" in measured().headline


def test_a_state_that_is_lost_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.load

    def losing(file: Any) -> Any:
        saved = real(file)
        for state in saved["optimizer"]["state"].values():
            state["exp_avg"].zero_()
        return saved

    monkeypatch.setattr(in_place.torch, "load", losing)
    assert "saved state" in measured().headline


def test_rounding_of_a_large_parameter_is_no_drift() -> None:
    """A step of 1e-3 on a parameter of 100 is rounded to 8e-6, in eager as well."""

    def large() -> Problem:
        problem = build()
        for parameter in problem.module.parameters():
            parameter.data.add_(100)
        return problem

    found: dict[str, Any] = {}
    in_place._optimizer(large, found)
    assert found["optimizer"]["right"], found


def test_parameters_that_start_at_zero() -> None:
    """Nothing but three steps is in them: what is rounded there is rounded in full view."""

    def zeros() -> Problem:
        problem = build()
        for parameter in problem.module.parameters():
            parameter.data.zero_()
        return problem

    found: dict[str, Any] = {}
    in_place._optimizer(zeros, found)
    assert found["optimizer"]["right"], found
