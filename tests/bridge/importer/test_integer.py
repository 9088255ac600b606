# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic that takes a loop: signs, zero, wrapping, dtypes, broadcasting, symbolic sizes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.bridge.importer.harness import run_test


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_gcd_and_lcm(dtype: torch.dtype) -> None:
    a = torch.tensor([0, 12, -12, 7, 127, -128, 1, 90]).to(dtype)
    b = torch.tensor([[0], [18], [-8], [1], [35]]).to(dtype)
    run_test(lambda a, b: (torch.gcd(a, b), torch.lcm(a, b)), a, b, ops=["aten.gcd.default", "aten.lcm.default"])


def test_gcd_of_symbolic_sizes() -> None:
    def inputs(n: int, m: int) -> tuple[Tensor, ...]:
        return torch.randint(-(10**12), 10**12, (n, m)) * 6, torch.randint(-1000, 1000, (m,)) * 6

    run_test(lambda a, b: (torch.gcd(a, b), torch.lcm(a, b)), *inputs(3, 4), then=[inputs(70, 90)], dynamic=True)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_power_with_a_tensor_exponent(dtype: torch.dtype) -> None:
    base = torch.tensor([-3, -2, -1, 0, 1, 2, 3, 10]).to(dtype)
    exponent = torch.tensor([[-3], [-2], [-1], [0], [1], [2], [5], [63], [100]]).to(dtype)

    def powers(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return a**b, 2**b, (-1) ** b, a ** b[4:].abs()[:, :1], torch.pow(a[0], b)

    run_test(powers, base, exponent, ops=["aten.pow.Tensor_Tensor", "aten.pow.Scalar"])


def test_float_power_of_integers() -> None:
    run_test(lambda a, b: (a**b, a ** (b * 0.5)), torch.tensor([1, 2, 3]), torch.tensor([0.5, 2.0, -1.0]))
