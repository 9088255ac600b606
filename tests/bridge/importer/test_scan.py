# SPDX-License-Identifier: Apache-2.0
"""Cumulative ops: ties, NaN, infinities, dtypes, any dim, symbolic sizes."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.bridge.importer.harness import run_test

nan, inf = float("nan"), float("inf")


def test_scans_along_any_dim_with_symbolic_sizes() -> None:
    def scans(x: Tensor) -> tuple[Tensor, ...]:
        return (
            x.cumsum(0),
            x.cumsum(-1),
            x.cumprod(1),
            x.logcumsumexp(0),
            *x.cummax(1),
            *x.cummin(0),
        )

    ops = ["aten.logcumsumexp.default", "aten.cummax.default", "aten.cummin.default"]
    run_test(scans, torch.randn(3, 4), then=[(torch.randn(5, 6),)], dynamic=True, ops=ops)


def test_cummax_takes_the_last_of_equals_and_keeps_nan() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, nan, 5.0, nan, 2.0], [2.0, 2.0, 1.0, 2.0, -inf, 2.0, 2.0]])
    run_test(lambda x: (*x.cummax(1), *x.cummin(1)), x)


def test_logcumsumexp_of_infinities() -> None:
    x = torch.tensor([[-inf, -inf, 0.0, 800.0, -800.0], [1.0, inf, 2.0, inf, 0.0]])
    run_test(lambda x: x.logcumsumexp(1), x, grad=False)


def test_scans_take_every_dtype() -> None:
    dtypes = (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.uint8, torch.bool)

    def scans(*tensors: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        for x in tensors:
            found += [x.cumsum(1), x.cumsum(1, dtype=torch.float32), *x.cummax(0), *x.cummin(1)]
        return found

    run_test(scans, *((torch.randn(3, 9) * 2).to(d) for d in dtypes), grad=False)


def test_scans_of_one_number() -> None:
    def scans(x: Tensor) -> tuple[Tensor, ...]:
        return x.cumsum(0), x.cumsum(-1, dtype=torch.float64), x.cumprod(0), x.logcumsumexp(0), x.cummax(0)[0]

    run_test(scans, torch.tensor(2.5), then=[(torch.tensor(-0.5),)])
    run_test(lambda x: (x.cumsum(0), x.cumprod(0), x.cummin(0)[0]), torch.tensor(3, dtype=torch.int32))
