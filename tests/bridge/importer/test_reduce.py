# SPDX-License-Identifier: Apache-2.0
"""Reductions: dims, dtypes, accumulation, ties, NaN, nothing to reduce, symbolic sizes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.bridge.importer.harness import run_test

nan, inf = float("nan"), float("inf")


def test_reductions_over_any_dims() -> None:
    def reductions(x: Tensor) -> list[Tensor]:
        return [
            x.sum(), x.sum(0), x.sum((-1, 0), keepdim=True), x.mean(), x.mean(1, keepdim=True), x.prod(1), x.var(0),
            x.var((0, 2), correction=0, keepdim=True), x.std(-1), *torch.var_mean(x, 1), x.amax(1), x.amin((0, 1)),
            x.logsumexp(1), x.norm(), torch.linalg.vector_norm(x, 3, 1), torch.linalg.vector_norm(x, inf, 0),
            x.max(), *x.max(1), *x.min(0, keepdim=True), x.argmax(), x.argmin(2), x.aminmax(dim=1)[0],
            x.count_nonzero(), (x > 0).any(1), (x > -9).all(), (x > 0).all((0, 2)),
        ]  # fmt: skip

    run_test(reductions, torch.randn(2, 3, 4))


def test_reductions_over_symbolic_sizes() -> None:
    def reductions(x: Tensor) -> list[Tensor]:
        return [x.sum(0), x.mean(), x.prod(1), x.var(1), x.amax(0), *x.max(1), x.argmin(), (x > 0).any(1), x.softmax(0)]

    run_test(reductions, torch.randn(3, 4), then=[(torch.randn(6, 7),), (torch.randn(2, 33),)], dynamic=True)


def test_extremes_of_ties_and_nan() -> None:
    x = torch.randint(1, 4, (4, 6)).float()
    x[1, 2], x[1, 4], x[2] = nan, nan, -inf

    def extremes(x: Tensor) -> list[Tensor]:
        values = [x.amax(1), x.amin(1), *x.max(1), *x.min(1), x.argmax(1), x.argmin(1)]
        return [*values, x[3].amax(), x[0].min(), x.max().nan_to_num(5.0), x.argmin() + 1]

    run_test(extremes, x)


def test_reductions_of_every_dtype() -> None:
    def reductions(*tensors: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        for t in tensors:
            found += [
                t.sum(),
                t.sum(0, dtype=torch.float64),
                t.any(1),
                t.all(0),
                t.sum(1, dtype=torch.int32),
                t.amax(0),
            ]
            if t.dtype is not torch.bool:
                found += [t.argmax(1), *t.min(1), t.prod(1)]
            if t.is_floating_point():
                found += [t.mean(), t.var(1), t.softmax(1), t.log_softmax(0)]
        return found

    x = torch.randn(3, 5) * 3
    dtypes = (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int64, torch.bool)
    run_test(reductions, *(x.to(d) for d in dtypes), grad=False)


def test_long_sums_lose_no_more_than_eagers() -> None:
    x = torch.rand(3, 5000) + 1

    def sums(x: Tensor, h: Tensor) -> list[Tensor]:
        return [x.sum(), x.mean(1), x.var(1), x.sum(0).sum(), h.sum(1), h.mean(), (x * x).sum()]

    run_test(sums, x, x.half() / 4)


def test_reductions_of_nothing_and_of_0d_tensors() -> None:
    def reductions(x: Tensor, e: Tensor) -> list[Tensor]:
        e = e.detach()
        nothing = [e.sum() + x, e.sum(0) + x, e.prod(0) + x, e.mean().nan_to_num(3.0) + x, e.any() | (x > 0), e.all(0)]
        return nothing + [x.sum(0), x.mean(), x.max(0)[0], x.amax(), x.softmax(0) * x, x.prod(), x.cumsum(0)]

    run_test(lambda x: reductions(x, torch.empty(0, 3)), torch.tensor(2.5))


def test_a_reduction_padded_into_a_larger_tensor() -> None:
    def padded(x: Tensor) -> list[Tensor]:
        rows, columns = x.sum(1, keepdim=True), x.sum(0, keepdim=True)
        return [F.pad(rows, (0, 2)) + x, F.pad(columns, (0, 0, 1, 2)) + x, torch.cat([rows, x], 1) * 2]

    run_test(padded, torch.randn(4, 3))


def test_gradient_of_a_product_with_zeros() -> None:
    run_test(lambda x: (x.prod(1), x[1:].prod()), torch.tensor([[1.0, 0.0, 2.0], [0.5, 3.0, -1.0], [2.0, 2.0, 4.0]]))


@pytest.mark.parametrize(("dim", "shape"), [(0, (3, 1, 1)), (2, (1, 1, 2))])
def test_gradient_of_weight_normalisation(dim: int, shape: tuple[int, ...]) -> None:
    def norm(v: Tensor, g: Tensor) -> Tensor:
        return torch._weight_norm(v, g, dim)

    run_test(norm, torch.randn(3, 4, 2), torch.randn(shape))

    def backward(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ops.aten._weight_norm_interface_backward(grad, v, g, norms, dim)

    inputs = torch.randn(3, 4, 2), torch.randn(3, 4, 2), torch.randn(shape), torch.rand(shape) + 1
    run_test(backward, *inputs, grad=False, ops=["aten._weight_norm_interface_backward.default"])


def test_vector_norms_of_every_order() -> None:
    def norms(x: Tensor) -> list[Tensor]:
        orders = (2, 1, 3, 0.5, -2, float("inf"), float("-inf"))
        found = [torch.linalg.vector_norm(x, p, dim=1, keepdim=p == 3) for p in orders]
        counted = torch.linalg.vector_norm(x.detach().relu(), 0, dim=(0, 2))
        return [*found, counted, torch.linalg.vector_norm(x), torch.linalg.vector_norm(x, 3, dtype=torch.float64)]

    run_test(norms, torch.randn(3, 4, 5), then=[(torch.randn(2, 7, 5),)])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_medians_of_halves_with_nan(dtype: torch.dtype) -> None:
    x = torch.randperm(35).reshape(5, 7).to(dtype)
    x[0, 0] = float("nan")
    run_test(lambda x: (*x.median(1), *x.nanmedian(0), x.nanmedian(), x[1:].median()), x)
