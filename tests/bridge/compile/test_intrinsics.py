"""exp, tanh and erf as polynomials: error in units in the last place over all exponents, and the special values."""

from __future__ import annotations

import math

import pytest
import torch
from tvm import te, tirx

from tests.bridge.compile.kernels import build

SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -1e-45, 1e-38, -1e-38, 3.4e38, -3.4e38]


def _every_exponent() -> torch.Tensor:
    """float32 numbers of both signs: 64 mantissas of each binary exponent, denormals included."""
    generator = torch.Generator().manual_seed(1)
    exponents = torch.arange(0, 255, dtype=torch.int32).repeat_interleave(64)
    mantissas = torch.randint(0, 1 << 23, exponents.shape, dtype=torch.int32, generator=generator)
    positive = ((exponents << 23) | mantissas).view(torch.float32)
    dense = torch.linspace(-110, 95, 1 << 16)
    numbers = torch.cat([positive, -positive, dense, torch.linspace(-5, 5, 1 << 16), torch.tensor(SPECIAL)])
    return numbers[: numbers.numel() // 16 * 16]


def _ulps(value: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    nearest = exact.float()
    spacing = torch.nextafter(nearest.abs(), torch.tensor(math.inf)) - nearest.abs()
    error = (value.double() - exact).abs() / spacing.double()
    return error[torch.isfinite(nearest) & torch.isfinite(spacing)]


@pytest.mark.parametrize(("name", "bound"), [("exp", 1.0), ("tanh", 1.5), ("erf", 1.5)])
@pytest.mark.parametrize("vector", [True, False], ids=["vector", "scalar"])
def test_error_stays_under_two_ulp_over_all_exponents(name: str, bound: float, vector: bool) -> None:
    x = _every_exponent()
    function = getattr(tirx, name)
    (result,), _ = build(lambda t: te.compute(t.shape, lambda i: function(t(i)), name="y"), x, schedule=vector)
    exact = getattr(torch, name)(x.double())
    assert _ulps(result, exact).max() <= bound


@pytest.mark.parametrize("name", ["exp", "tanh", "erf"])
def test_special_values_are_those_of_ieee(name: str) -> None:
    x = torch.tensor([*SPECIAL, 100.0, -110.0, 89.0, 88.72])
    function = getattr(tirx, name)
    (result,), _ = build(lambda t: te.compute(t.shape, lambda i: function(t(i)), name="y"), x)
    exact = getattr(torch, name)(x.double()).float()
    torch.testing.assert_close(result, exact, rtol=3e-7, atol=0, equal_nan=True)


def test_float64_keeps_its_precision() -> None:
    x = torch.linspace(-3, 3, 64, dtype=torch.float64)
    (result,), _ = build(lambda t: te.compute(t.shape, lambda i: tirx.exp(t(i)), name="y"), x)
    torch.testing.assert_close(result, x.exp(), rtol=1e-15, atol=0)
