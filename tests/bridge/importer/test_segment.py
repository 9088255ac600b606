# SPDX-License-Identifier: Apache-2.0
"""Reductions over runs of rows, and histograms: empty runs, NaN, ties, zeros, start values, bad bounds."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from relaxgrad.bridge.backend import relaxgrad
from tests.bridge.importer.harness import run_test

nan, inf = float("nan"), float("inf")
_OPS = ["aten.segment_reduce.default", "aten._segment_reduce_backward.default"]


@pytest.mark.parametrize("initial", [None, 1.5])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_runs_by_lengths_and_by_offsets(reduce: str, initial: float | None) -> None:
    lengths, offsets = torch.tensor([2, 0, 4, 1]), torch.tensor([[0, 2, 3], [1, 1, 3]])

    def runs(x: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.segment_reduce(x, reduce, lengths=lengths, initial=initial),
            torch.segment_reduce(x[:6].view(2, 3, 3), reduce, offsets=offsets, axis=1, initial=initial),
        )

    x = torch.randn(7, 3)
    x[1], x[5, 1], x[6, 2] = x[0], 0.0, nan  # equal rows in a run, a zero factor, a NaN
    run_test(runs, x, then=[(torch.randn(7, 3),)], ops=_OPS)


def test_a_negative_gradient_goes_to_every_maximum() -> None:
    x, lengths = torch.tensor([2.0, 2.0, 1.0, 3.0, 3.0]), torch.tensor([3, 2])
    run_test(lambda x: torch.segment_reduce(x, "max", lengths=lengths) * torch.tensor([-1.0, 1.0]), x)


def test_runs_of_symbolic_sizes_and_of_halves() -> None:
    def runs(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return torch.segment_reduce(x, "mean", lengths=lengths, unsafe=True), x * 2

    def inputs(n: int, lengths: list[int], dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
        return torch.randn(n, 3).to(dtype), torch.tensor(lengths)

    run_test(runs, *inputs(5, [2, 3]), then=[inputs(9, [4, 1, 2])], dynamic=True)
    run_test(runs, *inputs(5, [2, 3], torch.bfloat16))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lengths": torch.tensor([2, -1, 5])}, "negative"),
        ({"lengths": torch.tensor([2, 2])}, "sum"),
        ({"lengths": torch.tensor([2, 9]), "unsafe": True}, "sum"),
        ({"offsets": torch.tensor([0, 4, 3, 6])}, "ascend"),
        ({"offsets": torch.tensor([0, 4, 8])}, "ascend"),
        ({"offsets": torch.tensor([-1, 4])}, "ascend"),
    ],
)
def test_bounds_that_do_not_fit_raise(given: dict[str, Tensor], message: str) -> None:
    compiled = torch.compile(lambda x: torch.segment_reduce(x, "sum", **given), backend=relaxgrad)
    with pytest.raises(RuntimeError, match=message):
        compiled(torch.randn(6))


def test_histograms() -> None:
    def histograms(x: Tensor) -> tuple[Tensor, ...]:
        return torch.histc(x, 5, -1, 1), torch.histc(x, 7), torch.histc(x * 0 + 1, 3), torch.histc(x[1], 4, 0, 0.5)

    edges = torch.linspace(-1, 1, 12).view(3, 4)
    run_test(histograms, torch.randn(9, 40), then=[(edges,), (edges * 3,)], grad=False, ops=["aten.histc.default"])
    run_test(lambda x: torch.histc(x, 4, 0, 3), torch.tensor([0.0, 1, 2, 3, nan, -1, 3.5, inf]), grad=False)
    run_test(lambda x: torch.histc(x, 4), torch.rand(50).double(), grad=False)


def test_a_histogram_without_a_finite_range_raises() -> None:
    compiled = torch.compile(lambda x: torch.histc(x, 4), backend=relaxgrad)
    with pytest.raises(RuntimeError, match="not finite"):
        compiled(torch.tensor([1.0, nan]))
    assert compiled(torch.tensor([1.0, 2.0])).tolist() == [1.0, 0.0, 0.0, 1.0]
