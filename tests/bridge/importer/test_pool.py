# SPDX-License-Identifier: Apache-2.0
"""Pooling: ties, NaN, padding, overlap, dilation, ceil_mode, uneven adaptive windows; forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from relaxgrad.bridge.backend import relaxgrad
from tests.bridge.importer.harness import run_test

inf, nan = float("inf"), float("nan")


def test_max_pool2d_ties_go_to_first() -> None:
    x = torch.randint(0, 2, (2, 3, 6, 7)).float()
    run_test(
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
        x,
        ops=["aten.max_pool2d_with_indices.default", "aten.max_pool2d_with_indices_backward.default"],
    )


def test_max_pool2d_last_nan_wins_and_infinite_windows_have_an_index() -> None:
    x = torch.randn(1, 2, 6, 6)
    x[0, 0, 1, 1], x[0, 0, 1, 2], x[0, 0, 2, 2] = nan, nan, nan
    x[0, 1, :4, :4] = -inf
    run_test(lambda x: F.max_pool2d(x, 3, 1, 1, return_indices=True), x)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "ceil_mode"),
    [((2, 3), (3, 2), (1, 0), (1, 2), True), (3, 1, 1, 2, True)],
)
def test_max_pool2d_windows_overlap_dilate_and_hang_over(
    kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> None:
    run_test(
        lambda x: F.max_pool2d(x, kernel, stride, padding, dilation, ceil_mode, return_indices=True),
        torch.randn(2, 3, 9, 8),
    )


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 1, 1), (3, 3, 1), (5, 2, 2)])
def test_pools_of_a_size_that_runs_in_parallel(kernel: int, stride: int, padding: int) -> None:
    """Fused loops make quotients of the rows, and windows divide them: TVM took 3 by 3 at a stride of 2 wrong."""

    def pools(x: Tensor) -> tuple[Tensor, ...]:
        return F.max_pool2d(x, kernel, stride, padding), F.avg_pool2d(x, kernel, stride, padding)

    run_test(pools, torch.randn(8, 32, 32, 32))


def test_max_pool2d_of_channels_last_and_of_no_batch() -> None:
    def both(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return F.max_pool2d(x, 2, return_indices=True) + F.max_pool2d(y, 2, return_indices=True)

    run_test(both, torch.randn(2, 3, 4, 6).contiguous(memory_format=torch.channels_last), torch.randn(3, 4, 6))


def test_pools_take_every_float_dtype() -> None:
    def pools(*tensors: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        for x in tensors:
            found += [F.max_pool2d(x * 0.5, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1), F.adaptive_avg_pool2d(x, (2, 3))]
        return found

    run_test(pools, *(torch.randn(2, 2, 7, 8).to(d) for d in (torch.float16, torch.bfloat16, torch.float64)))


def test_pools_with_symbolic_sizes() -> None:
    def pools(x: Tensor) -> tuple[Tensor, ...]:
        return (
            *F.max_pool2d(x, 3, 2, 1, return_indices=True),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.adaptive_avg_pool2d(x, (2, 3)),
        )

    run_test(
        pools, torch.randn(2, 3, 7, 8), then=[(torch.randn(3, 3, 10, 9),), (torch.randn(4, 3, 5, 6),)], dynamic=True
    )


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [(2, 2, 0, 1), (3, 2, 1, 1), ((2, 3), (1, 2), (1, 0), (2, 1)), (2, 3, 1, 1)],
    ids=str,
)
def test_max_pool2d_of_symbolic_sizes_shares_the_loops_of_static_ones(
    kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> None:
    def pool(x: Tensor) -> tuple[Tensor, Tensor]:
        return F.max_pool2d(x, kernel, stride, padding, dilation, ceil_mode, return_indices=True)  # type: ignore[return-value]

    sizes = [(3, 2, 9, 41), (2, 3, 8, 34), (4, 2, 12, 5)]
    first, *then = [(torch.randn(size).round(decimals=1),) for size in sizes]
    run_test(pool, *first, then=then, dynamic=True, ops={"aten.max_pool2d_with_indices.default"})


@pytest.mark.parametrize(("count_include_pad", "divisor"), [(True, None), (False, None), (False, 5)])
def test_avg_pool2d_counts_padding_only_when_told(count_include_pad: bool, divisor: int | None) -> None:
    def pool(x: Tensor) -> tuple[Tensor, Tensor]:
        a = F.avg_pool2d(x, (3, 2), (2, 1), (1, 1), True, count_include_pad, divisor)
        return a, F.avg_pool2d(x, 2, 3, 0, True, count_include_pad, divisor)

    run_test(pool, torch.randn(2, 3, 6, 7), ops=["aten.avg_pool2d.default", "aten.avg_pool2d_backward.default"])


def test_pools_of_one_and_three_dims() -> None:
    def pools(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            *F.max_pool1d(x, 3, 2, 1, return_indices=True),
            F.avg_pool1d(x, 3, 2, 1),
            F.adaptive_avg_pool1d(x, 4),
            *F.max_pool3d(y, 2, 1, 1, return_indices=True),
            F.avg_pool3d(y, 2, (1, 2, 2), 1, True, False),
            F.adaptive_avg_pool3d(y, (2, 3, 1)),
        )

    run_test(
        pools,
        torch.randn(2, 3, 9),
        torch.randn(2, 2, 4, 5, 3),
        ops=["aten.max_pool3d_with_indices_backward.default", "aten.avg_pool3d_backward.default"],
    )


def test_adaptive_pools_have_uneven_windows_and_more_windows_than_elements() -> None:
    def pools(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            F.adaptive_avg_pool2d(x, (3, 4)),
            F.adaptive_avg_pool2d(x, (9, 11)),
            F.adaptive_avg_pool2d(x, 1),
            *F.adaptive_max_pool2d(x, (3, 4), return_indices=True),
            *F.adaptive_max_pool3d(y, (2, 3, 1), return_indices=True),
        )

    run_test(pools, torch.randn(2, 2, 7, 5), torch.randn(2, 2, 3, 4, 5))


def _fractional(kernel: int, out: int, dims: int, samples: Tensor) -> Callable[[Tensor], tuple[Tensor, ...]]:
    op = torch.ops.aten.fractional_max_pool2d if dims == 2 else torch.ops.aten.fractional_max_pool3d
    return lambda x: op.default(x, [kernel] * dims, [out] * dims, samples.to(x.dtype))


def test_fractional_max_pool_of_given_samples() -> None:
    samples = torch.tensor([[[0.0, 0.999], [0.5, 0.25], [0.31, 0.77]], [[0.9, 0.1], [0.0, 0.0], [0.62, 0.48]]])

    def pools(x: Tensor, plane: Tensor) -> list[Tensor]:
        settings = [(2, 5), (3, 1), (1, 11), (4, 8)]
        found = [t for kernel, out in settings for t in _fractional(kernel, out, 2, samples)(x)]
        return [*found, *_fractional(3, 4, 2, samples)(plane)]

    x, plane = torch.randint(-3, 4, (2, 3, 11, 13)).float(), torch.randn(3, 7, 9)
    x[0, 0, 2, 3] = x[0, 0, 4, 4] = nan
    x[1, 1] = -inf
    ops = ["aten.fractional_max_pool2d.default", "aten.fractional_max_pool2d_backward.default"]
    run_test(pools, x, plane, ops=ops)


def test_fractional_max_pool_over_three_dims_draws_as_eager_does() -> None:
    def pool(x: Tensor) -> tuple[Tensor, Tensor]:
        samples = torch.tensor([0.1, 0.5, 0.9]).expand(2, 3, 3)
        return _fractional(2, 4, 3, samples)(x)[0], _fractional(3, 2, 3, samples)(x)[1]

    run_test(pool, torch.randn(2, 3, 7, 6, 9), ops=["aten.fractional_max_pool3d_backward.default"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_fractional_windows_start_where_the_dtype_rounds_them(dtype: torch.dtype) -> None:
    # In a half type, position plus sample times the step is rounded at every step: whole windows move by it.
    torch.manual_seed(3)
    samples = torch.rand(1, 64, 2, dtype=dtype)
    x = torch.arange(301 * 4).reshape(1, 1, 301, 4).expand(1, 64, 301, 4)
    compiled = torch.compile(torch.ops.aten.fractional_max_pool2d.default, backend=relaxgrad)
    x = (x % 97).to(dtype)
    result, expected = (f(x, [2, 1], [77, 3], samples) for f in (compiled, torch.ops.aten.fractional_max_pool2d))
    assert torch.equal(result[0], expected[0])
    assert torch.equal(result[1], expected[1])


def test_fractional_max_pool_of_symbolic_sizes() -> None:
    def pool(x: Tensor, samples: Tensor) -> tuple[Tensor, ...]:
        return torch.ops.aten.fractional_max_pool2d.default(x, [2, 3], [4, 3], samples)

    def inputs(n: int, h: int, w: int) -> tuple[Tensor, Tensor]:
        return torch.randn(n, 3, h, w), torch.rand(n, 3, 2)

    # Forward only: torch's own shape function of the gradient makes every size a constant.
    run_test(pool, *inputs(2, 9, 8), then=[inputs(3, 6, 17)], grad=False, dynamic=True)
