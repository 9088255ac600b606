# SPDX-License-Identifier: Apache-2.0
"""The float64 rule: rounding passes, planted faults do not; and the float64 run keeps its precision and its masks."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from relaxgrad.coverage.harness import numbers
from relaxgrad.coverage.harness.numbers import (
    Verdict,
    compare,
    compare_all,
    curve_difference,
    float64_run,
    float64_step,
    same,
)
from relaxgrad.coverage.harness.problem import Problem
from relaxgrad.coverage.zoo import ZOO

shapes = st.lists(st.integers(1, 9), min_size=0, max_size=3).map(tuple)
scales = st.sampled_from([1e-12, 1e-6, 1.0, 1e6])


def sample(shape: tuple[int, ...], seed: int, scale: float) -> tuple[Tensor, Tensor]:
    """A float64 reference and its rounding to float32."""
    generator = torch.Generator().manual_seed(seed)
    reference = (torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5) * scale
    return reference, reference.float()


@given(shapes, st.integers(0, 999), scales)
def test_last_places_pass(shape: tuple[int, ...], seed: int, scale: float) -> None:
    reference, eager = sample(shape, seed, scale)
    moved = torch.nextafter(torch.nextafter(eager, torch.full_like(eager, math.inf)), torch.full_like(eager, math.inf))
    assert compare("g", reference, eager, eager.clone()).passed
    assert compare("g", reference, eager, moved).passed


@given(shapes, st.integers(0, 999), scales, st.sampled_from([1e-5, 1e-3, 1.0]))
def test_one_wrong_element_fails(shape: tuple[int, ...], seed: int, scale: float, size: float) -> None:
    reference, eager = sample(shape, seed, scale)
    result = eager.clone()
    result.view(-1)[seed % result.numel()] += size * float(reference.max())
    found = compare("g", reference, eager, result)
    assert found.verdict is Verdict.ERROR
    assert found.ratio > 1


@given(st.integers(2, 9), st.integers(0, 999))
def test_transposed_and_scaled_fail(n: int, seed: int) -> None:
    reference, eager = sample((n, n), seed, 1.0)
    assert not compare("g", reference, eager, eager.T.contiguous()).passed
    assert not compare("g", reference, eager, eager * 0.9).passed
    assert not compare("g", reference, eager, -eager).passed


def test_the_multiple_follows_eager_and_the_floor_does_not_vanish() -> None:
    reference = torch.ones(8, dtype=torch.float64)
    eager = (reference + 1e-4).float()
    assert compare("g", reference, eager, (reference - 3.9e-4).float()).passed
    assert not compare("g", reference, eager, (reference - 4.1e-4).float()).passed
    exact = reference.float()
    assert compare("g", reference, exact, exact + 7 * torch.finfo(torch.float32).eps).passed
    assert not compare("g", reference, exact, exact + 10 * torch.finfo(torch.float32).eps).passed


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (None, Verdict.MISSING),
        (torch.zeros(3), Verdict.ALL_ZERO),
        (torch.full((3,), math.nan), Verdict.NON_FINITE),
        (torch.tensor([1.0, math.inf, 3.0]), Verdict.NON_FINITE),
        (torch.ones(3, dtype=torch.float64), Verdict.DTYPE),
        (torch.ones(3, 1), Verdict.SHAPE),
    ],
)
def test_not_a_number_of_the_right_kind_fails(result: Tensor | None, verdict: Verdict) -> None:
    eager = torch.tensor([1.0, 2.0, 3.0])
    assert compare("g", eager.double(), eager, result).verdict is verdict


@pytest.mark.parametrize("eager", [torch.zeros(3), torch.zeros(0, 3), torch.full((3,), math.nan)])
def test_comparing_nothing_fails(eager: Tensor) -> None:
    assert compare("g", eager.double(), eager, eager.clone()).verdict is Verdict.EMPTY


def test_nan_and_infinity_where_eager_has_them_pass() -> None:
    eager = torch.tensor([1.0, math.nan, math.inf, -math.inf])
    assert compare("g", eager.double(), eager, eager.clone()).passed
    assert not compare("g", eager.double(), eager, torch.tensor([1.0, math.nan, math.inf, math.inf])).passed


def test_no_gradient_in_eager_is_none_here_too() -> None:
    assert compare("g", None, None, None).passed
    assert compare("g", None, None, torch.ones(1)).verdict is Verdict.UNEXPECTED
    with pytest.raises(ValueError, match="disagree"):
        compare("g", torch.ones(1), None, torch.ones(1))


def test_integers_are_exact() -> None:
    eager = torch.tensor([1, 2, 3])
    assert compare("g", eager, eager, eager.clone()).passed
    assert not compare("g", eager, eager, torch.tensor([1, 2, 4])).passed


def test_only_nan_is_the_same_as_nan() -> None:
    nan, infinity = float("nan"), float("inf")
    assert same(torch.tensor([nan, 1.0, infinity]), torch.tensor([nan, 1.0, infinity]))
    assert not same(torch.tensor([nan]), torch.zeros(1))
    assert not same(torch.tensor([infinity]), torch.tensor([torch.finfo(torch.float32).max]))
    assert same(torch.empty(0), torch.empty(0))
    assert not same(torch.empty(0), torch.empty(0, 2))


def test_names_on_one_side_fail() -> None:
    one = torch.ones(2)
    found = compare_all({"a": one.double(), "b": one.double()}, {"a": one, "b": one}, {"a": one, "c": one})
    assert {c.name: c.verdict for c in found} == {
        "a": Verdict.PASS,
        "b": Verdict.MISSING,
        "c": Verdict.UNEXPECTED,
    }
    assert numbers.worst(found) in found
    assert not numbers.worst(found).passed  # type: ignore[union-attr]  # of three
    assert numbers.worst([]) is None


def test_noise_is_measured_by_what_cancels() -> None:
    """The bias of a convolution before a batch norm: zero but for rounding, in eager and in the result."""
    reference = {"w": torch.tensor([1.0, -2.0]).double(), "b": torch.tensor([1e-17, -3e-18]).double()}
    eager = {"w": torch.tensor([1.0, -2.0]), "b": torch.tensor([1e-9, 2e-9])}
    noise = {"w": torch.tensor([1.0, -2.0]), "b": torch.tensor([9e-8, -2e-9])}
    wrong = {"w": torch.tensor([1.0, -2.0]), "b": torch.tensor([1e-4, -2e-9])}
    assert all(c.passed for c in compare_all(reference, eager, noise))
    assert [c.passed for c in compare_all(reference, eager, wrong)] == [True, False]


def test_magnitude_does_not_loosen_a_gradient_that_eager_gets_right() -> None:
    reference = {"w": torch.tensor([1e6]).double(), "b": torch.tensor([1e-3]).double()}
    eager = {"w": torch.tensor([1e6]), "b": torch.tensor([1e-3])}
    result = {"w": torch.tensor([1e6]), "b": torch.tensor([1.01e-3])}
    assert [c.passed for c in compare_all(reference, eager, result)] == [True, False]


def test_curves() -> None:
    assert curve_difference([2.0, 1.0], [2.0, 1.001]) == pytest.approx(1e-3, rel=1e-6)
    for reference, result in (([], []), ([1.0], [1.0, 2.0]), ([1.0], [math.nan]), ([math.nan], [math.nan])):
        assert curve_difference(reference, result) == math.inf


# ---------------------------------------------------------------------------------------------------------------------
# The float64 run


@given(st.integers(1, 200), st.floats(0.01, 0.99), st.integers(0, 999))
@settings(max_examples=30)
def test_dropout_draws_the_same_mask_in_float64(n: int, p: float, seed: int) -> None:
    torch.manual_seed(seed)
    narrow = F.dropout(torch.ones(n, 3), p) != 0
    torch.manual_seed(seed)
    assert torch.equal(F.dropout(torch.ones(n, 3, dtype=torch.float64), p) != 0, narrow)


DRAWS = {
    "rand": lambda x: torch.rand(x.shape),
    "rand, dtype given": lambda x: torch.rand(x.shape, dtype=torch.float32),
    "rand_like": torch.rand_like,
    "randn": lambda x: torch.randn(x.shape),
    "normal": lambda x: torch.normal(torch.zeros_like(x), 1.0),
    "uniform_": lambda x: torch.empty_like(x).uniform_(-1, 1),
    "exponential_": lambda x: torch.empty_like(x).exponential_(),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, tau=1.0),
    "dropout in attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    "feature dropout": lambda x: F.dropout1d(x, 0.5),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.5, training=True),
    "rrelu": lambda x: F.rrelu(x, training=True),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_are_those_of_float32(name: str) -> None:
    torch.manual_seed(7)
    x = torch.randn(2, 6, 40)
    torch.manual_seed(8)
    narrow = DRAWS[name](x)
    torch.manual_seed(8)
    with float64_run():
        wide = DRAWS[name](x.double())
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide.float(), narrow, rtol=1e-5, atol=1e-5)


class Rounds(nn.Module):
    """Does what models do that mean to be exact in half precision: computes in float32 whatever comes."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(16))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.steps, Tensor)
        self.steps += 1
        y = (x * self.w).to(torch.float32)
        y = F.softmax(y, dim=-1, dtype=torch.float32) + torch.ones(16, dtype=torch.float32) / 3
        return y.float().square().mean().type_as(x)


def test_casts_to_float32_do_not_round_the_reference() -> None:
    x = torch.randn(4, 16)
    problem = Problem(Rounds(), (x,))
    w = problem.module.get_parameter("w").detach().double().requires_grad_()
    exact = (F.softmax(x.double() * w, dim=-1) + 1 / 3).square().mean()
    exact.backward()
    values = float64_step(problem, 0)
    gradient = values.gradients["w"]
    assert gradient is not None
    assert gradient.dtype == torch.float64
    torch.testing.assert_close(values.loss, exact.detach(), rtol=1e-13, atol=0)
    torch.testing.assert_close(gradient, w.grad, rtol=1e-11, atol=1e-16)
    assert values.buffers["steps"].dtype == torch.int64
    assert int(values.buffers["steps"]) == 1
    assert torch.get_default_dtype() == torch.float32


def test_a_loss_may_close_over_float32_targets() -> None:
    target = torch.randn(4, 3)
    linear = nn.Linear(5, 3)
    values = float64_step(Problem(linear, (torch.randn(4, 5),), loss_fn=lambda y: F.mse_loss(y, target)), 0)
    assert values.loss.dtype == torch.float64


@pytest.mark.parametrize("name", ["cnn-bn", "convnext", "llama", "lstm"])
def test_eager_is_right_and_a_wrong_mask_is_not(name: str) -> None:
    reference = float64_step(ZOO[name].build(0), 5)

    def eager(seed: int) -> numbers.StepValues:
        problem = ZOO[name].build(0)
        torch.manual_seed(seed)
        loss = problem.loss(problem.module(*problem.args, **problem.kwargs))
        loss.backward()
        return numbers.step_values(problem, loss)

    same, other = eager(5), eager(6)
    errors = [c.eager_error for c in compare_all(reference.gradients, same.gradients, same.gradients)]
    assert max(errors) < 1e-4
    assert not all(c.passed for c in compare_all(reference.gradients, same.gradients, other.gradients))
