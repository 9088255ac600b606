# SPDX-License-Identifier: Apache-2.0
"""Autograd around a compiled graph: retained graphs, order of calls, hooks, custom functions, checkpoints."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from relaxgrad.bridge.backend import relaxgrad
from tests.bridge.regressions import Compile, Programs, grads, seen

program = Programs()
test_as_eager = program.test()


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


@program
def retained_graph(compile: Compile) -> dict[str, Any]:
    net = mlp()
    x = torch.randn(5, 4, requires_grad=True)
    y = compile(net)(x)
    y.sum().backward(retain_graph=True)
    first = grads(net)
    (y * torch.arange(3.0)).sum().backward(retain_graph=True)
    y.pow(3).sum().backward()
    return {"first": first, "x": x.grad, **grads(net)}


@program
def two_forwards_then_two_backwards(compile: Compile) -> dict[str, Any]:
    net = mlp()
    c = compile(net)
    xs = [torch.randn(5, 4, requires_grad=True) for _ in range(3)]
    ys = [c(x) for x in xs]
    for k in (1, 2, 0):
        ys[k].pow(2).sum().backward()
    return {"x": [x.grad for x in xs], **grads(net)}


@program
def forwards_of_two_sizes_before_backward(compile: Compile) -> dict[str, Any]:
    net = mlp()
    c = compile(net)
    xs = [torch.randn(n, 4, requires_grad=True) for n in (5, 2, 7)]
    ys = [c(x) for x in xs]
    for k in (0, 2, 1):
        ys[k].pow(2).sum().backward()
    return {"x": [x.grad for x in xs], **grads(net)}


@program
def gradients_accumulate(compile: Compile) -> dict[str, Any]:
    net = mlp()
    c = compile(net)
    out: dict[str, Any] = {}
    for k in range(3):
        c(torch.randn(2, 4)).sum().backward()
        out[f"step {k}"] = grads(net)
    before = [p.grad for p in net.parameters()]
    c(torch.randn(2, 4)).sum().backward()
    return {**out, "in place": [p.grad is g for p, g in zip(net.parameters(), before, strict=True)]}


@program
def gradient_tensors_are_the_callers(compile: Compile) -> dict[str, Any]:
    """A gradient that the caller scales in place must not change what later backwards give."""
    w = torch.randn(3, requires_grad=True)
    f = compile(lambda x, w: (x * w + w).sum())
    out: dict[str, Any] = {}
    for k in range(3):
        w.grad = None
        f(torch.full((3,), float(k)), w).backward()
        assert w.grad is not None
        out[f"grad {k}"] = seen(w.grad)
        w.grad.mul_(100)
    return out


@program
def autograd_grad_of_some(compile: Compile) -> dict[str, Any]:
    net = mlp()
    x = torch.randn(5, 4, requires_grad=True)
    unused = torch.randn(2, requires_grad=True)
    y = compile(net)(x)
    gx, gu, gw = torch.autograd.grad(y, [x, unused, net[0].weight], torch.ones_like(y), allow_unused=True)
    return {"gx": gx, "gu": gu, "gw": gw, **grads(net)}


@program
def frozen_parameters(compile: Compile) -> dict[str, Any]:
    net = mlp()
    net[0].requires_grad_(False)
    c = compile(net)
    x = torch.randn(2, 4, requires_grad=True)
    c(x).sum().backward()
    first = grads(net)
    net[0].requires_grad_(True)
    net[2].requires_grad_(False)
    c(x).sum().backward()
    return {"first": first, "x": x.grad, **grads(net)}


@program
def outputs_some_of_which_need_grad(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * w, x.detach() * 2, (x > 0), x.argmax(), (x * w).detach(), w

    x, w = torch.randn(4), torch.randn(4, requires_grad=True)
    ys = compile(f)(x, w)
    (ys[0].sum() + ys[5].sum()).backward()
    return {"ys": [seen(y) for y in ys], "grad": w.grad}


@program
def only_some_outputs_are_used(compile: Compile) -> dict[str, Any]:
    f = compile(lambda x, w: (x @ w, (x * 2).sum(1), w.exp()))
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    out: dict[str, Any] = {}
    for k in range(3):
        x.grad = w.grad = None
        f(x, w)[k].sum().backward()
        # AOTAutograd gives zeros where no used output depends on the input, eager gives None.
        out[f"{k}"] = [torch.zeros_like(t) if t.grad is None else t.grad for t in (x, w)]
    return out


@program
def tensor_hooks(compile: Compile) -> dict[str, Any]:
    seen_by_hook: list[torch.Tensor] = []
    w = torch.randn(4, requires_grad=True)
    w.register_hook(lambda g: g * 10)
    x = torch.randn(4, requires_grad=True)
    y = compile(lambda x, w: (x * w).sin())(x, w)
    y.register_hook(lambda g: seen_by_hook.append(g.clone()))
    (y * torch.arange(4.0)).sum().backward()
    return {"w": w.grad, "x": x.grad, "seen": seen_by_hook}


@program
def accumulate_hooks(compile: Compile) -> dict[str, Any]:
    """The optimizer-in-backward pattern: the hook consumes the gradient as soon as it is there."""
    net = mlp()
    calls: list[tuple[int, ...]] = []

    def hook(p: torch.Tensor) -> None:
        assert p.grad is not None
        calls.append(tuple(p.grad.shape))
        with torch.no_grad():
            p.add_(p.grad, alpha=-0.1)
        p.grad = None

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(hook)
    c = compile(net)
    ys = []
    for _ in range(2):
        y = c(torch.randn(3, 4))
        y.sum().backward()
        ys.append(y)
    return {"ys": ys, "calls": sorted(calls), **{n: p.detach() for n, p in net.named_parameters()}}


@program
def module_hooks(compile: Compile) -> dict[str, Any]:
    net = mlp()
    log: list[Any] = []
    net[1].register_forward_pre_hook(lambda m, a: (a[0] * 2,))
    net[1].register_forward_hook(lambda m, a, y: y + 1)
    net.register_full_backward_hook(lambda m, gi, go: log.append(("backward", seen(go[0]))))
    net[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,))
    c = compile(net)
    x = torch.randn(3, 4, requires_grad=True)
    y = c(x)
    y.sum().backward()
    return {"y": y, "log": log, "x": x.grad, **grads(net)}


@program
def custom_functions(compile: Compile) -> dict[str, Any]:
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, low: float) -> torch.Tensor:
            ctx.save_for_backward(x)
            ctx.low = low
            return x.clamp(min=low)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
            (x,) = ctx.saved_tensors
            return grad * (x > ctx.low) * 5, None

    def f(x: torch.Tensor) -> torch.Tensor:
        return Clip.apply(x.sin(), 0.1).exp()

    x = torch.randn(6, requires_grad=True)
    y = compile(f)(x)
    y.sum().backward()
    return {"y": y, "grad": x.grad}


@program
def checkpointed(compile: Compile) -> dict[str, Any]:
    net = mlp()

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(net, x, use_reentrant=False).exp()

    x = torch.randn(3, 4, requires_grad=True)
    y = compile(f)(x)
    y.sum().backward()
    return {"y": y, "x": x.grad, **grads(net)}


@program
def checkpoint_around_a_compiled_module(compile: Compile) -> dict[str, Any]:
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    c = compile(net)
    x = torch.randn(3, 4, requires_grad=True)
    y = checkpoint(c, x, use_reentrant=False)
    y.sum().backward()
    return {"y": y, "x": x.grad, **grads(net)}


@program
def functional_transforms(compile: Compile) -> dict[str, Any]:
    def f(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        loss = torch.func.grad(lambda w, x: (w * x).sin().sum())
        per_sample = torch.func.vmap(loss, (None, 0))(w, x)
        return per_sample, torch.func.vmap(lambda a: a.cumsum(0))(x)

    w, x = torch.randn(3), torch.randn(5, 3)
    return {"y": compile(f)(w, x)}


@program
def jacobian_in_the_graph(compile: Compile) -> dict[str, Any]:
    x = torch.randn(3)
    return {
        "jacrev": compile(lambda x: torch.func.jacrev(lambda t: t.sin() * t.sum())(x))(x),
        "jvp": compile(lambda x: torch.func.jvp(lambda t: t.exp() * 2, (x,), (torch.ones(3),)))(x),
    }


@program
def functional_call(compile: Compile) -> dict[str, Any]:
    net = mlp()
    params = {n: p.detach().clone().requires_grad_() for n, p in net.named_parameters()}
    f = compile(lambda params, x: torch.func.functional_call(net, params, (x,)))
    y = f(params, torch.randn(2, 4))
    y.sum().backward()
    return {"y": y, "params": {n: p.grad for n, p in params.items()}, **grads(net)}


@program
def no_grad_and_inference_mode(compile: Compile) -> dict[str, Any]:
    net = mlp()
    c = compile(net)
    x = torch.randn(2, 4)
    trained = c(x)
    with torch.no_grad():
        silent = c(x)
    with torch.inference_mode():
        inferred = c(x)
        flag = inferred.is_inference()
    again = c(x)
    again.sum().backward()
    return {"ys": [trained, silent, inferred.clone(), again], "flag": flag, **grads(net)}


@program
def no_grad_inside(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            scale = (x * w).abs().max()
        with torch.enable_grad():
            return x * w / scale, scale

    x, w = torch.randn(4), torch.randn(4, requires_grad=True)
    ys = compile(f)(x, w)
    ys[0].sum().backward()
    return {"ys": ys, "grad": w.grad}


@program
def graph_breaks(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = (x @ w).relu()
        if y.sum().item() > 0:
            y = y * 2
        torch._dynamo.graph_break()
        return (y @ w.t()).tanh()

    x, w = torch.rand(3, 4, requires_grad=True), torch.rand(4, 4, requires_grad=True)
    y = compile(f)(x, w)
    y.sum().backward()
    return {"y": y, "x": x.grad, "w": w.grad}


@program
def train_and_eval(compile: Compile) -> dict[str, Any]:
    net = nn.Sequential(nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 2))
    c = compile(net)
    x = torch.randn(5, 4)
    ys = []
    for mode in (True, False, True, False):
        net.train(mode)
        ys.append(c(x))
        if mode:
            ys[-1].pow(2).sum().backward()
    return {"ys": ys, **{n: b.clone() for n, b in net.named_buffers()}, **grads(net)}


@program
def tied_weights(compile: Compile) -> dict[str, Any]:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(7, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(ids).tanh())

    net = Tied()
    y = compile(net)(torch.tensor([[1, 2, 6], [0, 1, 1]]))
    F.cross_entropy(y.view(-1, 7), torch.tensor([1, 2, 3, 0, 5, 6])).backward()
    return {"y": y, **grads(net)}


@program
def loss_inside_or_outside(compile: Compile) -> dict[str, Any]:
    net = mlp()
    target = torch.tensor([0, 2, 1])
    x = torch.randn(3, 4)
    inside = compile(lambda x, t: F.cross_entropy(net(x), t, label_smoothing=0.1))(x, target)
    inside.backward()
    return {"loss": inside, **grads(net)}


@program
def backward_of_an_undefined_tangent(compile: Compile) -> dict[str, Any]:
    class First(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a + b

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
            return grad, None

    x = torch.randn(3, requires_grad=True)
    a, b = compile(lambda x: (x.sin(), x.exp()))(x)
    First.apply(a, b).sum().backward()
    return {"grad": x.grad}


# ---- what is not a comparison ----


def test_double_backward_is_refused_clearly() -> None:
    x = torch.randn(3, requires_grad=True)
    y = torch.compile(lambda x: x.sin().sum(), backend=relaxgrad)(x)
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        g.sum().backward()


def test_a_second_backward_without_retain_graph_is_refused() -> None:
    x = torch.randn(3, requires_grad=True)
    y = torch.compile(lambda x: (x.sin() * x).sum(), backend=relaxgrad)(x)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_a_saved_tensor_that_was_changed_is_refused() -> None:
    x = torch.randn(3, requires_grad=True)
    y = torch.compile(lambda x: x.exp(), backend=relaxgrad)(x)
    y.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_saved_tensors_die_with_the_graph() -> None:
    f = torch.compile(lambda x, w: (x @ w).exp().sum(), backend=relaxgrad)
    w = torch.randn(8, 8, requires_grad=True)
    x = torch.randn(8, 8)
    alive = weakref.ref(x)
    loss = f(x, w)
    loss.backward()
    del x, loss
    gc.collect()
    assert alive() is None


@program
def gradient_that_is_zero_everywhere(compile: Compile) -> dict[str, Any]:
    """sgn's backward makes a tensor without memory (ZeroTensor)."""
    x = torch.randn(3, 4, requires_grad=True)
    y = compile(torch.sgn)(x)
    y.sum().backward()
    assert x.grad is not None
    return {"y": seen(y), "gradient": seen(x.grad + 0)}
