# SPDX-License-Identifier: Apache-2.0
"""sort, topk, kthvalue, median, mode: stable, NaN last, gradients through the indices."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.bridge.importer.harness import run_test

nan, inf = float("nan"), float("inf")


def test_sort_is_stable_along_any_dim() -> None:
    x = torch.randint(0, 4, (7, 5, 3)).float()

    def sorts(x: Tensor) -> tuple[Tensor, ...]:
        return (*x.sort(dim=0, stable=True), *x.sort(descending=True, stable=True), *x.sort(dim=1, stable=True))

    run_test(sorts, x, ops=["aten.sort.stable"])


def test_sort_puts_nan_last_and_first_when_descending() -> None:
    x = torch.tensor([3.0, nan, -inf, 0.5, nan, inf, -0.0, 0.0, 2.0])
    run_test(lambda x: (*x.sort(stable=True), *x.sort(descending=True, stable=True)), x)


def test_sort_takes_every_dtype() -> None:
    dtypes = (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.uint8, torch.bool)
    x = torch.randn(2, 9) * 3

    def sorts(*tensors: Tensor) -> list[Tensor]:
        return [v for x in tensors for v in (*x.sort(stable=True), *x.sort(dim=0, descending=True, stable=True))]

    run_test(sorts, *(x.to(d) for d in dtypes))


def test_order_statistics_with_symbolic_sizes() -> None:
    def statistics(x: Tensor) -> tuple[Tensor, ...]:
        return (
            *x.sort(0),
            *x.topk(2, 0),
            *x.topk(3, -1, largest=False),
            *x.kthvalue(2, 0),
            *x.median(0, keepdim=True),
            *x.nanmedian(1),
            x.median(),
        )

    ops = ["aten.sort.default", "aten.topk.default", "aten.kthvalue.default", "aten.median.dim", "aten.nanmedian.dim"]
    run_test(statistics, torch.randn(5, 4), then=[(torch.randn(8, 6),)], dynamic=True, ops=ops)


def test_median_of_nan_is_nan_unless_ignored() -> None:
    x = torch.randn(4, 6)
    x[0, 2], x[0, 4], x[2, :5] = nan, nan, nan
    run_test(lambda x: (*x.median(1), *x.nanmedian(1), x[1:2].median(), x.nanmedian()), x)


def test_mode_is_smallest_of_most_frequent_at_its_last_place() -> None:
    x = torch.randint(0, 4, (5, 8)).float()
    run_test(lambda x: (*x.mode(1), *x.mode(0, keepdim=True)), x)


def test_sort_of_a_long_row_and_of_one_element() -> None:
    run_test(lambda x, y: (*x.sort(stable=True), *y.sort(0), *y.topk(1, 0)), torch.randn(1000), torch.randn(1, 3))


def test_order_statistics_of_0d_tensors() -> None:
    run_test(lambda x: (x.sort()[0], x.median(0)[0], x.kthvalue(1)[0], x.mode(0)[0]), torch.tensor(2.5))
