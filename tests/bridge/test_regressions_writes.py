# SPDX-License-Identifier: Apache-2.0
"""Inputs and buffers that a graph writes: seen by the caller, read by what comes after, and not by what came before."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bridge.regressions import Compile, Programs, grads, seen, shares

program = Programs()
test_as_eager = program.test()


@program
def inputs_written(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        old = x * 1
        x.add_(y)
        y.zero_()
        z[1:].mul_(2)
        return old, x * 2, z.sum()

    x, y = torch.randn(3), torch.randn(3)
    z = torch.randn(4, 6).t()[::2]
    g = compile(f)
    versions = [t._version for t in (x, y, z)]
    out = [g(x, y, z), g(x, y, z)]
    return {
        "out": out,
        "x": x,
        "y": y,
        "z": seen(z),
        "told": [t._version > v for t, v in zip((x, y, z), versions, strict=True)],
    }


@program
def views_before_and_after_a_write(compile: Compile) -> dict[str, Any]:
    """A view of a written input reads the new value; what was computed before it keeps the old one."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before, view = x[1:] * 1, x[1:]
        x.mul_(10)
        return before, view, x[0], view + 1, x.t()

    with torch.no_grad():
        x = torch.randn(3, 2)
        ys = compile(f)(x)
        shared = [shares(y, x) for y in ys]
        x.add_(1)
    return {"ys": [seen(y) for y in ys], "x": x, "shares": shared}


@program
def swapped_inputs(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        t = x.clone()
        x.copy_(y)
        y.copy_(t)
        return x + 2 * y

    x, y = torch.randn(3), torch.randn(3)
    return {"out": compile(f)(x, y), "x": x, "y": y}


@program
def input_written_by_view_of_another(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.copy_(y.t())
        y.copy_(x * 2)
        return x.sum()

    with torch.no_grad():
        x, y = torch.randn(3, 3), torch.randn(3, 3)
        return {"out": compile(f)(x, y), "x": x, "y": y}


@program
def shifted_within_an_input(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> torch.Tensor:
        x[1:] = x[:-1].clone()
        x[0] = 7
        x.t_() if x.dim() == 2 else None
        return x * 1

    x = torch.arange(5.0)
    return {"out": compile(f)(x), "x": x}


@program
def written_input_that_needs_grad(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x.add_(w)
        return (x * w).sin()

    leaf, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    x = leaf * 2
    y = compile(f)(x, w)
    (y.sum() + (x * torch.arange(3.0)).sum()).backward()
    return {"x": seen(x), "y": y, "leaf": leaf.grad, "w": w.grad}


@program
def view_of_a_leaf_written(compile: Compile) -> dict[str, Any]:
    def f(v: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        v.add_(k)
        return v * 2

    leaf, k = torch.randn(4, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    base = leaf * 1
    y = compile(f)(base[1], k)
    (y.sum() + base.pow(2).sum()).backward()
    return {"base": seen(base), "y": y, "leaf": leaf.grad, "k": k.grad}


@program
def parameters_written_without_grad(compile: Compile) -> dict[str, Any]:
    p = nn.Parameter(torch.randn(3, 2))

    def step(p: torch.Tensor, g: torch.Tensor) -> None:
        with torch.no_grad():
            p.add_(g, alpha=-0.1)

    g = compile(step)
    view = p.detach()[0]
    for _ in range(3):
        g(p, torch.ones(3, 2))
    return {"p": p.detach(), "view": seen(view), "leaf": p.is_leaf}


@program
def buffers_written(compile: Compile) -> dict[str, Any]:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(4, 3))
            self.register_buffer("count", torch.tensor(0))
            self.w = nn.Parameter(torch.randn(3))

        def forward(self, x: torch.Tensor, at: int) -> torch.Tensor:
            self.cache[at] = x.detach()
            self.count += 1
            return (self.cache * self.w).sum() + self.count

    m = Cache()
    c = compile(m)
    out: dict[str, Any] = {}
    for k in (0, 1, 3):
        y = c(torch.randn(3), k)
        y.backward()
        out[f"y{k}"] = y
    return {**out, "cache": m.cache, "count": m.count, **grads(m)}


@program
def resized_views_written_under_no_grad(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.view(-1)[::2].fill_(0)
        x.diagonal().add_(5)
        x.t()[0].neg_()
        return x.sum()

    x = torch.randn(4, 4)
    return {"y": compile(f)(x), "x": x}


@program
def integer_and_bool_inputs_written(compile: Compile) -> dict[str, Any]:
    def f(i: torch.Tensor, b: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        i.add_(1)
        b.logical_not_()
        h.mul_(0.5)
        return i * b

    i, b, h = torch.arange(4), torch.tensor([True, False, True, False]), torch.randn(4).half()
    return {"y": compile(f)(i, b, h), "i": i, "b": b, "h": h}


@program
def writes_through_strides_of_symbolic_inputs(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x[:, 1:].add_(1)
        return x.t() * 2, x[1:]

    g = compile(f)
    out: dict[str, Any] = {}
    for n in (3, 5, 4):
        base = torch.arange(n * 8.0).view(n, 8)
        x = base[:, 1::2]
        ys = g(x)
        out[f"ys{n}"], out[f"base{n}"] = [seen(y) for y in ys], base
        out[f"shares{n}"] = [shares(y, base) for y in ys]
    return out


@program
def a_buffer_read_before_it_is_written(compile: Compile) -> dict[str, Any]:
    """Backward computes the sine again, from the buffer as it was."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(3, 2))
            self.register_buffer("total", torch.ones(2, 3))
            self.register_buffer("count", torch.tensor([3]))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = (self.total.t() * 2).sin() * self.w * (self.count * 1.5).cos() * x
            self.total.add_(1)
            self.count.mul_(2)
            return y, self.total.t()

    net = Net()
    c = compile(net)
    out: dict[str, Any] = {}
    for k in range(2):
        y, view = c(torch.full((3, 2), 2.0))
        y.sum().backward()
        out[f"y{k}"], out[f"view{k}"], out[f"shares{k}"] = y, view.clone(), shares(view, net.total)
    return {**out, **grads(net), **dict(net.named_buffers())}
