# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolution and its gradients in kernels of our own, and what stays with ATen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from relaxgrad.bridge.kinds import Kind
from tests.bridge.importer.harness import run_test

BOTH = frozenset({Kind.NATIVE, Kind.LIBRARY})


def depthwise(stride: Any, padding: Any, dilation: Any) -> Any:
    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.conv2d(x, weight, bias, stride, padding, dilation, groups=x.shape[1])

    return function


@pytest.mark.parametrize("size", [(1, 1), (4, 4), (7, 5), (16, 17), (20, 33)], ids=str)
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 5), (2, 4), (1, 9)], ids=str)
def test_depthwise(size: tuple[int, int], kernel: tuple[int, int]) -> None:
    x, weight, bias = torch.randn(2, 3, *size), torch.randn(3, 1, *kernel), torch.randn(3)
    run_test(depthwise(1, [k // 2 + 1 for k in kernel], 1), x, weight, bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("stride", "padding", "dilation"),
    [(2, 1, 1), ((1, 3), (0, 4), 1), (1, 2, 2), (3, 5, (2, 3)), ((2, 1), (3, 0), 2)],
    ids=str,
)
def test_strides_and_dilations(stride: Any, padding: Any, dilation: Any, dtype: torch.dtype) -> None:
    x, weight, bias = (torch.randn(s, dtype=dtype) for s in ((2, 3, 15, 18), (3, 1, 3, 5), (3,)))
    strided = stride != 1
    run_test(depthwise(stride, padding, dilation), x, weight, bias, kinds=BOTH if strided else {Kind.NATIVE})


@pytest.mark.parametrize("stride", [1, 3])
def test_padding_wider_than_the_input_and_taps_that_only_see_padding(stride: int) -> None:
    x, weight, bias = torch.randn(1, 2, 2, 3), torch.randn(2, 1, 3, 3), torch.randn(2)
    run_test(depthwise(stride, 4, 1), x, weight, bias, kinds={Kind.NATIVE} if stride == 1 else BOTH)


def test_a_large_regular_filter_takes_one_dnn_forward_and_ours_backward() -> None:
    x, weight, bias = torch.randn(2, 16, 9, 9), torch.randn(16, 1, 7, 7), torch.randn(16)
    records = run_test(depthwise(1, 3, 1), x, weight, bias, kinds=BOTH)
    kinds = {op: set(counts) for r in records for op, counts in r.ops.items() if "convolution" in op}
    assert kinds == {
        "aten.convolution.default": {Kind.LIBRARY},
        "aten.convolution_backward.default": {Kind.NATIVE},
    }


@pytest.mark.parametrize("needed", [(0,), (1,), (2,), (0, 1), (1, 2)], ids=str)
def test_only_the_gradients_that_are_asked_for(needed: tuple[int, ...]) -> None:
    tensors = [torch.randn(2, 4, 6, 6), torch.randn(4, 1, 3, 3), torch.randn(4)]

    def function(*given: Tensor) -> Tensor:
        arguments = [g if i in needed else g.detach() for i, g in enumerate(given)]
        return F.conv2d(*arguments, padding=1, groups=4)

    run_test(function, *tensors)


def test_infinity_at_the_end_of_a_row_reaches_no_other_row() -> None:
    x, weight, bias = torch.randn(1, 2, 5, 6), torch.randn(2, 1, 3, 3), torch.randn(2)
    x[0, 0, 2, 5] = float("inf")
    run_test(depthwise(1, 0, 1), x, weight, bias)


def test_other_convolutions_stay_with_aten() -> None:
    library = {Kind.LIBRARY}
    x = torch.randn(2, 4, 8, 8)
    run_test(lambda x, w: F.conv2d(x, w, groups=2), x, torch.randn(6, 2, 3, 3), kinds=library)
    run_test(lambda x, w: F.conv2d(x, w, groups=4), x, torch.randn(8, 1, 3, 3), kinds=library)  # two filters a channel
    run_test(
        lambda x, w: F.conv3d(x, w, groups=4), torch.randn(2, 4, 5, 5, 5), torch.randn(4, 1, 3, 3, 3), kinds=library
    )
    run_test(lambda x, w: F.conv_transpose2d(x, w, groups=4), x, torch.randn(4, 1, 3, 3), kinds=library)


def test_a_batch_of_any_size() -> None:
    run_test(
        depthwise(1, 1, 1), torch.randn(2, 3, 6, 6), torch.randn(3, 1, 3, 3), torch.randn(3),
        then=[(torch.randn(5, 3, 6, 6), torch.randn(3, 1, 3, 3), torch.randn(3))],
    )  # fmt: skip
