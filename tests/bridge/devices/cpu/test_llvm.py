# SPDX-License-Identifier: Apache-2.0
"""Kernels that LLVM itself has compiled wrongly, kept with the option that prevents it (target.LLVM_OPTIONS)."""

from __future__ import annotations

from typing import Any

import torch

from relaxgrad.bridge.backend import relaxgrad


def derivatives(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.gradient(x, dim=(0, 1), spacing=[2.0, 1.0], edge_order=2)


def backward(function: Any, x: torch.Tensor, tangents: list[torch.Tensor]) -> torch.Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf, tangents)[0]


def test_branches_over_repeated_columns_read_the_right_elements() -> None:
    """The backward is one kernel of 16 branches, each over elements `x[b % 4]` of a loop over b < 16: with LLVM's
    if-conversion on, it read past the row."""
    generator = torch.Generator().manual_seed(0)
    x, *tangents = (torch.randn(4, 4, 4, generator=generator) for _ in range(3))
    expected = backward(derivatives, x, tangents)
    assert expected.abs().max() > 1
    torch.compiler.reset()
    for _ in range(3):  # what lies behind the row differs from run to run
        compiled = torch.compile(derivatives, backend=relaxgrad, fullgraph=True)
        torch.testing.assert_close(backward(compiled, x, tangents), expected)
        torch.compiler.reset()
