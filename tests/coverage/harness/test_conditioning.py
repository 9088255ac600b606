# SPDX-License-Identifier: Apache-2.0
"""What eager itself does where a result is not right: a kink is ill-conditioned, a fault near a kink is wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from relaxgrad.coverage.harness.conditioning import (
    CURVES,
    MOVES,
    VARIANTS,
    EagerSpread,
    conditioning,
    curve_limit,
    eager_variants,
    errors_of,
)
from relaxgrad.coverage.harness.numbers import StepValues, Verdict, compare, float64_step, step_values
from relaxgrad.coverage.harness.problem import Problem, seed_everything
from relaxgrad.coverage.harness.train_record import Status, TrainRecord
from relaxgrad.coverage.harness.training import train_model
from tests.coverage.harness.standin import StandIn

FILE = """
import torch
from torch import nn
from relaxgrad.coverage.harness.problem import Problem

class Kink(nn.Module):
    # closed in eager and in float64; one unit in the last place of x opens it
    def __init__(self, c):
        super().__init__()
        self.w = nn.Parameter(torch.full((4,), 3.0))
        self.register_buffer("c", c)
    def forward(self, x):
        return torch.relu(x * self.w - self.c).sum() + self.w.square().sum()

def always():
    x = torch.linspace(0.3, 0.9, 400)
    c = x * 3.0
    below = (x.double() * 3.0 - c.double()) < 0
    return Kink(c[below][:4].clone()), x[below][:4].clone()

def at_seed_0():
    module, x = always()
    if torch.initial_seed():
        module.c -= 1
    return module, x

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(3, 3), nn.Linear(3, 3)
    def forward(self, x):
        return self.used(x), self.unused(x)

def two():
    return Problem(Two(), (torch.randn(2, 3),), loss_fn=lambda out: out[0].square().mean(), compile_loss=False)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def one_ulp(x: Tensor) -> Tensor:
    return torch.nextafter(x, torch.full_like(x, float("inf")))


@dataclass
class Moved(StandIn):
    """Compiles the module and gives it its first input moved a little, as another order of sums would."""

    move: Callable[[Tensor], Tensor] = one_ulp

    def compile(self, module: nn.Module) -> Callable[..., Any]:
        inner = super().compile(module)
        return lambda x: inner(self.move(x))


def train(model: str, compiler: StandIn) -> TrainRecord:
    return train_model(model, 3, 0, compiler)


def test_a_kink_at_one_seed_is_validated_at_the_next(file: Path) -> None:
    record = train(f"{file}:at_seed_0", Moved())
    assert (record.status, record.reason, record.seed) == (Status.TRAINED, "", 1)
    (asked,) = record.conditioning
    assert asked.covered
    assert asked.float64 is not None
    assert asked.float64 < 1e-9
    assert asked.variants["inputs moved up by one ulp"] == pytest.approx(asked.error)
    assert max(asked.variants.values()) == pytest.approx(asked.error, rel=1e-4)
    assert asked.error > 1e-2
    assert "moves by" in asked.told()


def test_a_kink_at_every_seed_is_neither_trained_nor_wrong(file: Path) -> None:
    graphs: list[Any] = []
    record = train_model(f"{file}:always", 3, 0, Moved(), graphs=graphs)
    assert record.status is Status.ILL_CONDITIONED
    assert [asked.seed for asked in record.conditioning] == [0, 1, 2]
    assert record.reason == record.conditioning[0].told()
    assert len(graphs) == len(record.graph_details) == 2  # of the run that the record is of


def test_a_fault_near_a_kink_shows_in_float64(file: Path) -> None:
    record = train(f"{file}:always", Moved(move=lambda x: x * (1 + 1e-6)))
    assert record.status is Status.WRONG
    assert "eager moves as far, but compiled in float64 it differs by" in record.reason


def test_what_stays_in_eager_in_float64_proves_nothing(file: Path) -> None:
    class Narrow(Moved):
        def compile(self, module: nn.Module) -> Callable[..., Any]:
            wide = any(p.dtype is torch.float64 for p in module.parameters())
            return module if wide else super().compile(module)

    record = train(f"{file}:always", Narrow())
    assert record.status is Status.WRONG
    assert "the float64 step was not compiled" in record.reason


def test_a_fault_that_eager_does_not_show_is_wrong(file: Path) -> None:
    record = train(f"{file}:always", StandIn(backward_fault=lambda outputs: [outputs[0] * 1.5, *outputs[1:]]))
    assert record.status is Status.WRONG
    assert record.conditioning[0].beyond
    assert record.conditioning[0].float64 is None  # not asked: eager is steady there


def test_a_zero_of_autograd_is_accepted_and_named(file: Path) -> None:
    record = train(f"{file}:two", StandIn())
    assert record.status is Status.TRAINED, record.reason
    assert record.gradients.zeros == ["unused.weight", "unused.bias"]
    assert record.gradients.compared == 2


def test_a_value_where_eager_has_none_is_not(file: Path) -> None:
    def fault(outputs: list[Any]) -> list[Any]:
        return [o + 1e-30 if isinstance(o, Tensor) and not bool(o.any()) else o for o in outputs]

    record = train(f"{file}:two", StandIn(backward_fault=fault))
    assert record.status is Status.WRONG
    assert "a tensor where eager has None" in record.reason or Verdict.UNEXPECTED in record.reason


def test_only_a_zero_that_autograd_makes_too_is_accepted() -> None:
    assert compare("g", None, None, torch.zeros(2)).verdict is Verdict.ZERO
    assert not compare("g", None, None, torch.zeros(2)).right


def values(gradient: Tensor, loss: float = 1.0) -> StepValues:
    return StepValues(torch.tensor(loss, dtype=gradient.dtype), {"w": gradient}, {})


def test_missing_and_zero_are_never_explained() -> None:
    one = torch.ones(3)
    far = [("variant", errors_of(values(one.double()), values(one), values(one * 9)))]
    for result in (torch.zeros(3), torch.full((3,), float("nan")), torch.ones(2)):
        assert not conditioning(0, values(one.double()), values(one), values(result), far).covered
    missing = StepValues(torch.tensor(1.0), {"w": None}, {})
    assert not conditioning(0, values(one.double()), values(one), missing, far).covered
    assert conditioning(0, values(one.double()), values(one), values(one * 5), far).covered


def test_nothing_to_explain_explains_nothing() -> None:
    """A loss alone that is off, which no variant shows, and a step that is right."""
    one = torch.ones(3)
    assert not conditioning(0, values(one.double()), values(one), values(one), []).covered
    assert not conditioning(0, values(one.double()), values(one), values(one, loss=2.0), []).covered


def test_a_curve_is_held_to_the_distance_of_any_two_of_eagers_runs() -> None:
    assert curve_limit([1.0, 1.0], []) == pytest.approx(64 * torch.finfo(torch.float32).eps)
    one_step = [5.0]
    assert curve_limit([1.0, 1.0], [[1.0, 1.1], [1.0, 0.9], one_step]) == pytest.approx(0.2 / 0.9, rel=0.2)


def test_the_spread_runs_what_is_asked_for_and_keeps_figures() -> None:
    """No draw runs where an earlier variant answers; a second look finds the same figures without running anything."""
    torch.manual_seed(0)
    net, inputs = nn.Linear(4, 2), torch.randn(3, 4)
    built = 0

    def build() -> Problem:
        nonlocal built
        built += 1
        return Problem(copy.deepcopy(net), (inputs,))

    eager = step_values(problem := build(), _backward(problem))
    reference = float64_step(build(), 0)
    spread = EagerSpread(build, 0, reference, eager, steps=2)
    built = 0
    first = next(iter(spread))
    assert (first[0], built) == ("without oneDNN", 1)
    far = StepValues(eager.loss, {n: g * 2 for n, g in eager.gradients.items() if g is not None}, {})
    assert not conditioning(0, reference, eager, far, spread).covered
    ran = built
    assert ran == len(VARIANTS) + MOVES  # channels_last builds a problem to find that it changes nothing
    assert [name for name, _ in spread] == [name for name, _ in spread]
    assert next(iter(spread)) is first
    assert built == ran
    assert [len(losses) for losses in spread.curves()] == [2] * (len(VARIANTS) - 1 + CURVES) + [1] * (MOVES - CURVES)


def _backward(problem: Problem) -> Tensor:
    seed_everything(0)
    loss = problem.loss(problem.module(*problem.args))
    loss.backward()
    return loss


def test_variants_of_eager_are_runs_of_the_same_problem() -> None:
    def build() -> Problem:
        torch.manual_seed(3)
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5))
        return Problem(net, (torch.randn(2, 3, 8, 8),))

    threads, onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
    runs = dict(eager_variants(build, 0, 2))
    assert list(runs)[:5] == [
        "without oneDNN", "channels_last", "another number of threads", "inputs moved up by one ulp",
        "inputs moved down by one ulp",
    ]  # fmt: skip
    assert len(runs) == 5 + MOVES
    losses = torch.tensor([run.losses for run in runs.values() if len(run.losses) == 2])
    assert losses.shape == (5 + CURVES, 2)
    assert len({run.first.loss.item() for run in runs.values()}) > 2  # they do move
    assert float((losses - losses[0]).abs().max()) < 1e-4
    assert (torch.get_num_threads(), torch.backends.mkldnn.enabled) == (threads, onednn)


def test_a_variant_with_other_dropout_masks_is_none() -> None:
    """Dropout fills a channels_last tensor in the order of its memory: the mask is another, and explains nothing."""

    def build() -> Problem:
        torch.manual_seed(3)
        return Problem(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Dropout(0.5)), (torch.randn(2, 3, 8, 8),))

    runs = dict(eager_variants(build, 0, 1))
    assert "channels_last" not in runs
    assert "without oneDNN" in runs
