"""Pooling: ties, NaN, padding, overlap, dilation, ceil_mode, uneven adaptive windows; forward and backward."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from .harness import run_test

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
