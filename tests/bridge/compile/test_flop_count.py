# SPDX-License-Identifier: Apache-2.0
"""How much arithmetic a kernel has, for the profile's roofline."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from relaxgrad.bridge.backend import relaxgrad
from relaxgrad.bridge.devices.cpu.passes import intrinsics
from relaxgrad.bridge.kinds import Kernel, Kind
from relaxgrad.bridge.runtime.executable import Executable

ROWS, COLUMNS = 8, 64


def kernel_of(function: Callable[[torch.Tensor], object], dtype: torch.dtype, dynamic: bool = False) -> Kernel:
    torch.compiler.reset()
    before = set(Executable.live)
    options = {"cache": "off", "compile_in": "here"}
    torch.compile(function, backend=relaxgrad, options=options, dynamic=dynamic)(torch.ones(ROWS, COLUMNS, dtype=dtype))
    (executable,) = set(Executable.live) - before
    return next(k for name, k in executable.kernels.items() if name != "shape_func")


EXP = intrinsics.instructions("tirx.exp")


@pytest.mark.parametrize(
    ("function", "dtype", "an_element"),
    [
        (lambda x: x + 1, torch.float32, 1),
        (lambda x: x - x.flip(1), torch.float32, 1),
        (lambda x: (x * 2 + 1) * x, torch.float32, 2),  # the first product and the sum are one instruction
        (lambda x: torch.cat([x[:, :8]] * 8, 1), torch.float32, 0),
        (lambda x: x + 1, torch.float64, 2),
        (lambda x: x.exp(), torch.float32, EXP),
        (lambda x: (lambda y: (y, y * x))(x + 1), torch.float32, 2),
        (lambda x: x[:, :1].expand(ROWS, COLUMNS).clone(), torch.float32, 0),
    ],
)
def test_operations_an_element(function: Callable[..., object], dtype: torch.dtype, an_element: int) -> None:
    assert kernel_of(function, dtype) == Kernel(Kind.NATIVE, an_element * ROWS * COLUMNS)


def test_a_reduction_counts_each_element_once() -> None:
    found = kernel_of(lambda x: x.sum(1), torch.float32).operations
    assert found is not None
    assert 1 <= found / (ROWS * COLUMNS) < 3  # in float64, and across lanes


def test_functions_are_their_instructions() -> None:
    assert 15 < EXP < 40
    assert intrinsics.instructions("relaxgrad.pow") > 2 * EXP  # in float64
    assert intrinsics.instructions("tirx.sqrt") == 0  # none of ours


def test_unknown_sizes_are_not_guessed() -> None:
    assert kernel_of(lambda x: x + 1, torch.float32, dynamic=True).operations is None
