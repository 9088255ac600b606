# SPDX-License-Identifier: Apache-2.0
"""Strides that a trace would lose: results and what `as_strided` reads behind them lie in memory as eager's do."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.bridge.regressions import Compile, Programs, agree, seen

program = Programs()
test_as_eager = program.test()


def image(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes).to(memory_format=torch.channels_last)


@program
def a_window_of_a_rolled_image(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.roll((1, -2), (0, 3))
        return y, y.as_strided((4, 6), (7, 3), 2), y.as_strided((5,), (9,), 0).exp()

    x = image(2, 3, 5, 4).requires_grad_()
    y, window, few = compile(f)(x)
    (y.square().sum() + (window * torch.arange(24.0).view(4, 6)).sum() + few.sum()).backward()
    return {"y": seen(y), "window": seen(window), "few": seen(few), "grad": x.grad}


@program
def a_window_of_a_transposed_sum(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.copysign(x.mT, y)
        return z, z.as_strided((7,), (3,), 1) * 2

    with torch.no_grad():
        return {"ys": [seen(y) for y in compile(f)(torch.randn(4, 6), torch.randn(6, 4))]}


@program
def channels_shuffled_in_a_channels_last_net(compile: Compile) -> dict[str, Any]:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Conv2d(4, 6, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = self.inner(x).relu()
            return torch.channel_shuffle(y, 3), F.pixel_unshuffle(y[..., :4, :2], 2), y.roll(1, 1)

    x = image(2, 4, 6, 5).requires_grad_()
    ys = compile(Net().to(memory_format=torch.channels_last))(x)
    sum((y * y).sum() for y in ys).backward()
    return {"ys": [seen(y.detach()) for y in ys], "grad": x.grad}


@program
def factors_of_a_kernel_matrix(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        k = torch.cdist(x, x).neg().exp() + torch.eye(5)
        low = torch.linalg.cholesky(k)
        q, r = torch.linalg.qr(x)
        solved = torch.linalg.solve_triangular(low, y, upper=False)
        signed = torch.copysign(k.mT, k - 0.5)
        return torch.cholesky_solve(y, low), torch.linalg.inv(k), q @ r, solved, low, signed

    with torch.no_grad():
        return {"ys": [seen(y) for y in compile(f)(torch.randn(5, 2), torch.randn(5, 3))]}


@program
def elementwise_results_of_mixed_orders(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, y: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        t = x.transpose(1, 2)
        return (
            torch.copysign(t, y), torch.floor_divide(t, y), torch.div(t, y, rounding_mode="floor"),
            torch.logaddexp(t, y), torch.logical_xor(row, t), torch.xlogy(t, y), torch.special.xlog1py(t, y),
            torch.heaviside(t, y), torch.ldexp(row, t), torch.logaddexp2(row, t),
        )  # fmt: skip

    with torch.no_grad():
        return {"ys": [seen(y) for y in compile(f)(torch.rand(3, 2, 4), torch.rand(3, 4, 2) + 1, torch.rand(2))]}


@program
def an_outer_product_added_to_what_beta_drops(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.addr(x.t(), a, b, beta=0), torch.addr(x.t(), a, b, beta=0.5)

    with torch.no_grad():
        return {"ys": [seen(y) for y in compile(f)(torch.randn(3, 4), torch.randn(4), torch.randn(3))]}


@program
def unpooled_channels_last(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> torch.Tensor:
        pooled, where = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(pooled, where, 2)

    with torch.no_grad():
        return {"y": seen(compile(f)(image(2, 3, 6, 4)))}


@program
def a_window_of_an_expanded_input(compile: Compile) -> dict[str, Any]:
    """The input is not dense: it enters as a copy in which a window would be another."""
    f = compile(lambda x: x.as_strided((2, 3), (1, 2), 0) + 1)
    with torch.no_grad():
        return {"y": seen(f(torch.randn(9)[::2].expand(4, 5)))}


def test_a_rolled_image_of_any_size() -> None:
    def rolled(compile: Compile) -> dict[str, Any]:
        f = compile(lambda x: x.roll(1, 0) * 2)
        with torch.no_grad():
            return {f"y{n}": seen(f(image(n, 3, n + 1, 4))) for n in (2, 3, 5)}

    agree(rolled, dynamic=True)
