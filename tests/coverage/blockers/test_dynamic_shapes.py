# SPDX-License-Identifier: Apache-2.0
"""Blocker 2: which sizes can be tried, that a step of another size is validated, that graph breaks get their line."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from relaxgrad.coverage.blockers import dynamic_shapes
from relaxgrad.coverage.blockers.dynamic_shapes import explained, measure, narrowed, schedule
from relaxgrad.coverage.blockers.finding import Level
from relaxgrad.coverage.harness.problem import Problem


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.head(self.embedding(tokens)).flatten(0, 1), tokens.flatten())


def tokens() -> Problem:
    torch.manual_seed(0)
    return Problem(Tokens(), (torch.randint(10, (4, 9)),))


class Breaks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        print(end="")  # the line that breaks
        return y.square().mean()


def test_a_batch_and_a_length_can_be_narrowed() -> None:
    problem = tokens()
    assert narrowed(problem, batch=2).args[0].shape == (2, 9)  # type: ignore[union-attr]
    assert narrowed(problem, length=5).args[0].shape == (4, 5)  # type: ignore[union-attr]
    assert narrowed(problem, batch=5) is None
    mixed = Problem(problem.module, (torch.ones(4, 2), torch.ones(3, 2)))
    assert narrowed(mixed, batch=2) is None
    assert narrowed(mixed, length=1) is None


def test_the_schedule_has_what_the_model_accepts() -> None:
    names = [name for name, _ in schedule(tokens())]
    assert names == ["as given", "batch 3, length 6", "batch 2, length 4", "as given"]

    class Fixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(4, 9).mean()

    assert [name for name, _ in schedule(Problem(Fixed(), (torch.ones(4, 9),)))] == ["as given"]


def test_what_was_one_tensor_stays_one() -> None:
    tokens_ = torch.zeros(4, 9, dtype=torch.long)
    smaller = narrowed(Problem(nn.Identity(), (tokens_,), {"labels": tokens_}), batch=2)
    assert smaller is not None
    assert smaller.kwargs["labels"] is smaller.args[0]


def test_sizes_in_a_row_are_right_and_counted() -> None:
    finding = measure(tokens, 0)
    assert finding.level is Level.CLEAR, finding.headline
    assert finding.numbers["recompiles"] == 1  # for the batch and the length
    assert finding.numbers["symbolic_graphs"] >= 2
    assert finding.numbers["graph_breaks"] == 0
    assert finding.numbers["guards"] > 0
    assert 0.1 < finding.numbers["penalty"] < 50


def test_a_wrong_step_of_another_size_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(module: nn.Module, **_: Any) -> Any:
        return lambda x: module(x) * (1.0 if x.shape[0] == 4 else 1.01)

    monkeypatch.setattr(dynamic_shapes, "compile_on_tvm", planted)
    finding = measure(tokens, 0)
    assert finding.level is Level.BLOCKS
    assert finding.headline.startswith("wrong at another size: batch 3, length 6: loss")


def test_a_step_that_raises_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(module: nn.Module, **_: Any) -> Any:
        raise RuntimeError("no such size")

    monkeypatch.setattr(dynamic_shapes, "compile_on_tvm", planted)
    finding = measure(tokens, 0)
    assert (finding.level, "no such size" in finding.headline) == (Level.BLOCKS, True)


def test_a_graph_break_has_its_line() -> None:
    numbers, evidence = explained(Problem(Breaks(), (torch.ones(2, 3),)), 0)
    assert (numbers["graphs"], numbers["graph_breaks"]) == (2, 1)
    (found,) = evidence
    assert "# the line that breaks" in found.where
    assert __file__ in found.where
