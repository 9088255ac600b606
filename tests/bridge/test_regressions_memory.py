# SPDX-License-Identifier: Apache-2.0
"""Strides, aliases, storage offsets and empty tensors: what the caller gets lies in memory as eager's does."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bridge.regressions import Compile, Programs, grads, seen, shares

program = Programs()
test_as_eager = program.test()


# ---- what is returned ----


@program
def outputs_that_are_inputs(compile: Compile) -> dict[str, Any]:
    x, y = torch.randn(3, 4), torch.randn(2)
    a, b, c, d = compile(lambda x, y: (x, y * 2, x, x.t()))(x, y)
    a.add_(1)
    return {"x": seen(x), "same": (a is x, c is x), "shares": (shares(d, x), shares(b, y)), "d": seen(d)}


@program
def views_of_one_result(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.exp()
        return y, y[1:], y.t(), y.diagonal(), y.unsqueeze(1).expand(3, 5, 3), y.view(-1)[2:7]

    with torch.no_grad():
        ys = compile(f)(torch.randn(3, 3))
        ys[0].zero_()
    return {"ys": [seen(y) for y in ys], "shares": [shares(y, ys[0]) for y in ys]}


@program
def views_of_a_result_that_is_not_row_major(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, z = x + 1, image * 2
        return y, y[0], y.t(), z, z[:, 1], z.permute(0, 2, 3, 1), y.sum(0)

    with torch.no_grad():
        image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
        y, row, t, z, channel, last, total = compile(f)(torch.randn(3, 4).t(), image)
        y.zero_()
        z.fill_(3)
    views = {"row": row, "t": t, "channel": channel, "last": last}
    shared = {f"{name} shares": shares(v, y if name in ("row", "t") else z) for name, v in views.items()}
    return {name: seen(v) for name, v in (views | {"y": y, "z": z, "total": total}).items()} | shared


@program
def strides_over_what_lies_around_a_view(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x, (2,), (1,), 3) * 2

    base = torch.arange(6.0)
    return {"inside": seen(compile(f)(base[2:5])), "whole": seen(compile(f)(base))}


@program
def views_of_one_result_with_grad(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.sin()
        return y, y[1:], y.t(), y.diagonal()

    x = torch.randn(3, 3, requires_grad=True)
    y, tail, t, d = compile(f)(x)
    tail.mul_(2)
    ((t * torch.arange(9.0).view(3, 3)).sum() + d.sum() * 3 + y.sum()).backward()
    return {"y": seen(y), "t": seen(t), "grad": x.grad, "shares": [shares(v, y) for v in (tail, t, d)]}


@program
def result_returned_twice(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> Any:
        y = x.sin()
        return {"a": y, "b": [y, None, 3, "text"], "c": (y.detach(), x)}

    x = torch.randn(4, requires_grad=True)
    out = compile(f)(x)
    out["a"].sum().backward()
    return {"out": out, "same": out["a"] is out["b"][0], "grad": x.grad, "shares": shares(out["c"][0], out["a"])}


@program
def permuted_results_keep_their_strides(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.permute(2, 0, 1)
        return y * 2, y.exp().sum(-1), (y + 1)[..., 0], y.contiguous(), torch.relu(x.transpose(0, 1)), y.clone()

    x = torch.randn(2, 3, 4, requires_grad=True)
    ys = compile(f)(x)
    sum(y.sum() for y in ys).backward()
    return {"ys": ys, "grad": x.grad}


@program
def channels_last(compile: Compile) -> dict[str, Any]:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    net = net.to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 6, 5).to(memory_format=torch.channels_last).requires_grad_()
    y = compile(net)(x)
    y.pow(2).sum().backward()
    return {"y": seen(y), "x": x.grad, **grads(net)}


@program
def dims_of_size_one(compile: Compile) -> dict[str, Any]:
    x = torch.randn(1, 5).t().as_strided((5, 1), (1, 77)).requires_grad_()
    z = torch.randn(4, 1, 6)[:, :, ::2]
    ys = compile(lambda x, z: (x * 2, x.view(-1), z + 1, z.squeeze(1), z.transpose(0, 1)))(x, z)
    (ys[0].sum() + ys[1].prod()).backward()
    return {"ys": [seen(y) for y in ys[:2]], "z": [y.contiguous() for y in ys[2:]], "grad": x.grad}


@program
def expanded_result(compile: Compile) -> dict[str, Any]:
    x = torch.randn(3, 1, requires_grad=True)
    y, z = compile(lambda x: (x.sin().expand(3, 4), x.expand(3, 4)))(x)
    (y.sum() + z.sum()).backward()
    return {"y": y.detach().clone(), "z": z.detach().clone(), "strides": (y.stride(), z.stride()), "grad": x.grad}


@program
def as_strided_views(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return x.as_strided((3, 2), (2, 1), 1) + 1, y.as_strided((2, 2), (3, 1), 1).sin(), y.unfold(0, 3, 2)

    x = torch.randn(8, requires_grad=True)
    ys = compile(f)(x)
    sum((y * y).sum() for y in ys).backward()
    return {"ys": [seen(y) for y in ys], "grad": x.grad}


@program
def inplace_on_results(compile: Compile) -> dict[str, Any]:
    """A result that the caller changes must not be memory that backward or a later call reads."""
    f = compile(lambda x: (x.exp(), x * 2))
    out: dict[str, Any] = {}
    for k in range(3):
        x = torch.full((3,), float(k), requires_grad=True)
        y, z = f(x)
        z.mul_(3)
        (y + z).sum().backward()
        out[f"y{k}"], out[f"z{k}"], out[f"grad{k}"] = seen(y), seen(z), x.grad
    return out


@program
def kept_results_are_not_overwritten(compile: Compile) -> dict[str, Any]:
    f = compile(lambda x: (x.softmax(-1), x.sum(), torch.ones(3), torch.arange(4)))
    kept = [f(torch.full((2, 3), float(k)).cumsum(1)) for k in range(4)]
    kept[0][2].add_(5)  # a constant of the graph is the caller's own
    kept[0][3].add_(5)
    return {"kept": kept, "again": f(torch.zeros(2, 3))}


@program
def constants_of_the_graph(compile: Compile) -> dict[str, Any]:
    table = torch.tensor([1.0, 2.0, 3.0])

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        c = torch.tensor([1.0, -1.0, 2.0])
        return x * c + table, c, torch.tensor(3), torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)

    g = compile(f)
    x = torch.randn(3, requires_grad=True)
    first = g(x)
    first[1].zero_()
    table.mul_(10)
    second = g(x)
    second[0].sum().backward()
    return {"first": first, "second": second, "grad": x.grad}


@program
def no_tensor_is_computed(compile: Compile) -> dict[str, Any]:
    x = torch.randn(3, 2, requires_grad=True)
    y = compile(lambda x: (x.view(2, 3), None, x.shape[0], x.detach()))(x)
    y[0].sum().backward()
    return {"y": [seen(v) for v in y], "grad": x.grad}


# ---- what comes in ----


@program
def inputs_with_offsets(compile: Compile) -> dict[str, Any]:
    base = torch.randn(50)
    f = compile(lambda a, b, w: (a * b).sum(0) @ w)
    out: dict[str, Any] = {}
    for k in (0, 1, 3, 7):
        a = base[k : k + 12].view(3, 4)
        b = base[k + 2 : k + 26 : 2].view(4, 3).t()
        w = base[k + 1 : k + 9].view(4, 2).detach().requires_grad_()
        y = f(a, b, w)
        y.sum().backward()
        out[f"y{k}"], out[f"grad{k}"] = y, w.grad
    return out


@program
def misaligned_bytes(compile: Compile) -> dict[str, Any]:
    """Storages at odd byte offsets of narrow types: kernels may assume one element's alignment and no more."""
    half = torch.randn(33).to(torch.bfloat16)[1:].view(4, 8)
    small = torch.arange(65, dtype=torch.int8)[1:].view(8, 8)
    mask = (torch.arange(33) % 3 == 0)[1:].view(4, 8)
    y = compile(lambda h, s, m: (h.float().exp().where(m, 0), s.sum(1), (s > 5) & (s < 40)))(half, small, mask)
    return {"y": y}


@program
def same_tensor_twice(compile: Compile) -> dict[str, Any]:
    x = torch.randn(3, 3, requires_grad=True)
    f = compile(lambda a, b: (a @ b).sin())
    f(x, x).sum().backward()
    first = seen(x.grad)
    y = torch.randn(3, 3)
    return {"first": first, "other": f(y, y), "distinct": f(y, x.detach())}


@program
def same_tensor_twice_and_written(compile: Compile) -> dict[str, Any]:
    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return a * b

    x = torch.randn(4)
    y = compile(f)(x, x)
    return {"x": x, "y": y}


@program
def overlapping_inputs(compile: Compile) -> dict[str, Any]:
    base = torch.arange(10.0)

    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a * 2 + b

    g = compile(f)
    windows = base.as_strided((4, 3), (2, 1))
    return {
        "y": g(base[:5], base[2:7]),
        "windows": g(windows, windows.flip(1)),
        "expanded": g(base[:1].expand(6), base[:6]),
    }


@program
def one_view_written_another_read(compile: Compile) -> dict[str, Any]:
    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        before = b.sum()
        a.mul_(3)
        return before + b.sum()

    base = torch.arange(8.0)
    y = compile(f)(base[:5], base[3:])
    return {"base": base, "y": y}


@program
def negated_and_conjugated_views(compile: Compile) -> dict[str, Any]:
    z = torch.view_as_complex(torch.randn(4, 2))
    imag = z.conj().imag
    f = compile(lambda t: t * 2 + 1)
    return {
        "is_neg": imag.is_neg(),
        "y": f(imag),
        "plain": f(torch.randn(4)),
        "t": f(torch._neg_view(torch.randn(3, 2)).t()),
    }


@program
def zero_strided_parameters(compile: Compile) -> dict[str, Any]:
    w = torch.randn(1, 4).expand(3, 4).detach().requires_grad_()
    x = torch.randn(3, 4)
    y = compile(lambda w, x: (w * x).sin())(w, x)
    y.sum().backward()
    return {"y": y, "grad": seen(w.grad)}


@program
def empty_tensors(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x @ w
        return (
            y,
            y.sum(),
            y.sum(0),
            torch.cat([x, x.new_ones(1, 3)]),
            x.softmax(1),
            y.reshape(0),
            x[:, :0],
            y.mean(1),
            x.t() * 2,
        )

    x = torch.randn(0, 3, requires_grad=True)
    w = torch.randn(3, 2, requires_grad=True)
    ys = compile(f)(x, w)
    sum(y.sum() for y in ys).backward()
    return {"ys": ys, "x": x.grad, "w": w.grad}


@program
def empty_inner_dims(compile: Compile) -> dict[str, Any]:
    def f(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            a @ b,
            a.sum(1),
            a.prod(1),
            a.transpose(0, 1),
            torch.cat([a, a], 1),
            (a * 2).any(1),
            a.unsqueeze(2).expand(2, 0, 5),
        )

    a, b = torch.randn(2, 0, requires_grad=True), torch.randn(0, 3)
    ys = compile(f)(a, b)
    ys[0].sum().backward()
    return {"ys": ys, "grad": a.grad}


@program
def zero_dim_tensors(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x * y,
            x.expand(3),
            x.reshape(1, 1),
            x.sum(0),
            x.softmax(0),
            x.max(),
            x.unsqueeze(0),
            torch.stack([x, y]),
            x + 1,
        )

    x, y = torch.tensor(1.5, requires_grad=True), torch.tensor(2.5)
    ys = compile(f)(x, y)
    sum(v.sum() for v in ys).backward()
    return {"ys": [seen(v) for v in ys], "grad": x.grad}


@program
def none_and_nested_arguments(compile: Compile) -> dict[str, Any]:
    def f(a: Any, b: Any = None, *, d: Any = None) -> Any:
        y = a["x"] * a["k"]
        if b is not None:
            y = y + b[0]
        return {"y": y, "d": d}

    g = compile(f)
    x = torch.randn(3, requires_grad=True)
    one = g({"x": x, "k": 2}, None, d=None)
    two = g({"x": x, "k": 2}, (x,), d=torch.ones(1))
    (one["y"] + two["y"]).sum().backward()
    return {"one": one, "two": two, "grad": x.grad}
