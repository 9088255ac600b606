# SPDX-License-Identifier: Apache-2.0
"""Element-wise ops seldom used."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.bridge.importer.harness import run_test

nan, inf = float("nan"), float("inf")
_EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 1e-42, 3e38, inf, -inf, nan, 0.5])


def test_fmax_and_fmin_ignore_nan() -> None:
    def extremes(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return torch.fmax(x, y), torch.fmin(x, y), torch.maximum(x, y), torch.minimum(x, y)

    run_test(extremes, _EDGES[None], _EDGES[:, None])


def test_bits_of_floats() -> None:
    def bits(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        mantissa, exponent = torch.frexp(x)
        return x.signbit(), x.isposinf(), x.isneginf(), torch.nextafter(x, y), mantissa, exponent, x.angle()

    edges = torch.cat([_EDGES[:6], _EDGES[7:]])  # a subnormal float32 is not one in float64
    run_test(bits, edges, edges.flip(0), grad=False, ops=["aten.frexp.Tensor", "aten.nextafter.default"])


def test_powers_of_two_and_decimals() -> None:
    e = torch.tensor([-3.0, 0.0, 2.0, 5.0])

    def scaled(x: Tensor) -> tuple[Tensor, ...]:
        return torch.ldexp(x, e), x.round(decimals=2) + x, (x * 100).round(decimals=-1)

    run_test(scaled, torch.randn(3, 4))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_shifts_past_the_last_bit(dtype: torch.dtype) -> None:
    x, y = torch.tensor([-100, -1, 0, 1, 77, 127]).to(dtype), torch.tensor([[0], [1], [6], [7], [9], [70]]).to(dtype)
    run_test(lambda x, y: (x << y, x >> y, x << 2, x >> 3, ~x, x & y, x ^ y), x, y)


@pytest.mark.parametrize("right", [True, False])
def test_searches_in_sorted_rows(right: bool) -> None:
    rows = torch.tensor([[1.0, 2.0, 2.0, 4.0], [0.0, 0.0, 3.0, 5.0]])
    x = torch.tensor([[2.0, 0.5, 9.0], [0.0, nan, 4.0]])

    def search(rows: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        by_row = torch.searchsorted(rows, x, right=right)
        return by_row, torch.bucketize(x, rows[0], right=right, out_int32=True)

    run_test(search, rows, x, then=[(torch.randn(3, 7).sort(1)[0], torch.randn(3, 5))], grad=False)
    records = run_test(search, rows, x, then=[(rows[:, :3], x[:, :2])], grad=False, dynamic=True)
    assert len(records) == 1


def test_randomised_leaky_relu_in_eval_mode() -> None:
    records = run_test(
        lambda x: torch.nn.functional.rrelu(x, 0.1, 0.9, training=False), torch.randn(5, 4), kinds={"native", "library"}
    )
    assert len(records) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_bits_and_decimals_of_halves(dtype: torch.dtype) -> None:
    edges = torch.tensor([0.0, 1.5, -3e-6, inf, nan, 100.0]).to(dtype)
    run_test(lambda x: torch.frexp(x), edges, grad=False, ops=["aten.frexp.Tensor"])
    if dtype is torch.bfloat16:  # ATen has none for float16
        x, y = torch.tensor([0.0, -0.0, 1.0, -1.0, 1e-40, inf, -inf, nan, 2.0])[:, None].to(dtype), edges.neg()
        run_test(lambda x, y: torch.nextafter(x, y), x, y, grad=False, ops=["aten.nextafter.default"])
    rounded = (torch.randn(60) * 30).to(dtype)
    run_test(lambda x: (x.round(decimals=2), x.round(decimals=-1)), rounded, grad=False, ops=["aten.round.decimals"])


def test_searches_for_a_number_through_a_sorter_and_in_nothing() -> None:
    def search(rows: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        flat = rows[0].sort()[0]
        by_sorter = torch.searchsorted(rows, x, sorter=rows.argsort(-1))
        return by_sorter, torch.searchsorted(flat, 0.3), torch.bucketize(0.5, flat, right=True) + 1

    run_test(search, torch.randn(3, 7), torch.randn(3, 5), grad=False, ops=["aten.searchsorted.Scalar"])
    run_test(lambda b, x: torch.searchsorted(b, x) + (x > 0), torch.randn(0), torch.randn(9), grad=False)
    whole = torch.tensor([0, 1, 1, 4])
    run_test(lambda b: (torch.searchsorted(b, 1.0), torch.searchsorted(b, 1, side="right")), whole, grad=False)
