# SPDX-License-Identifier: Apache-2.0
"""Whole training steps: optimizers compiled, attention, parametrizations, outputs of every container, data parallel."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from tests.bridge.regressions import Compile, Programs, agree, grads, seen

program = Programs()
test_as_eager = program.test()


# ---- optimizers ----

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=0.05, amsgrad=True, foreach=False),
    "adam_tensor_lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.05), foreach=False),
    "adam_foreach": lambda p: torch.optim.Adam(p, lr=0.05, foreach=True, maximize=True),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd_foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_optimizer_steps(name: str) -> None:
    """Dynamo traces Adam's bias corrections as float32 tensors, where eager computes them in Python."""

    def program(compile: Compile) -> dict[str, Any]:
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        optimizer = OPTIMIZERS[name](net.parameters())
        step = compile(optimizer.step)
        pointers = [p.data_ptr() for p in net.parameters()]
        for k in range(3):
            optimizer.zero_grad()
            net(torch.full((2, 3), float(k + 1))).pow(2).sum().backward()
            step()
            if k == 1 and isinstance(optimizer.param_groups[0]["lr"], float):
                optimizer.param_groups[0]["lr"] = 0.01  # a scheduler's work
        state = [v for s in optimizer.state.values() for v in s.values()]
        same = [p.data_ptr() == q for p, q in zip(net.parameters(), pointers, strict=True)]
        return {"state": seen(state), "same": same, **{n: p.detach() for n, p in net.named_parameters()}}

    agree(program, traced=True)


@program
def whole_step_outside(compile: Compile) -> dict[str, Any]:
    """The usual loop: compiled forward, eager optimizer and clipping, gradients set to None and to zero."""
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2))
    c = compile(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    losses = []
    for k in range(4):
        optimizer.zero_grad(set_to_none=k % 2 == 0)
        loss = F.mse_loss(c(torch.randn(5, 3)), torch.ones(5, 2))
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.detach())
    return {"losses": losses, **{n: p.detach() for n, p in net.named_parameters()}}


# ---- attention ----


@program
def attention_of_every_kind(compile: Compile) -> dict[str, Any]:
    def f(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor, keep: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        sdpa = F.scaled_dot_product_attention
        return (
            sdpa(q, k, v), sdpa(q, k, v, is_causal=True), sdpa(q, k, v, attn_mask=bias), sdpa(q, k, v, attn_mask=keep),
            sdpa(q, k[:, :1], v[:, :1], enable_gqa=True), sdpa(q, k, v, scale=0.3), sdpa(q[:, :, :1], k, v),
        )  # fmt: skip

    q, k, v = (torch.randn(2, 4, 5, 8, requires_grad=True) for _ in range(3))
    bias = torch.randn(5, 5)
    keep = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
    ys = compile(f)(q, k, v, bias, keep)
    sum((y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum() for y in ys).backward()
    return {"ys": ys, "q": q.grad, "k": k.grad, "v": v.grad}


@program
def multihead_attention(compile: Compile) -> dict[str, Any]:
    layer = nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)
    c = compile(layer)
    x = torch.randn(2, 4, 8, requires_grad=True)
    padding = torch.tensor([[False, False, False, True], [False, False, True, True]])
    y, weights = c(x, x, x, key_padding_mask=padding)
    z, _ = c(x, x, x, need_weights=False)
    ((y * y).sum() + z.sin().sum()).backward()
    return {"y": y, "weights": weights, "z": z, "x": x.grad, **grads(layer)}


@program
def a_row_with_every_key_masked(compile: Compile) -> dict[str, Any]:
    q = torch.randn(1, 1, 3, 4, requires_grad=True)
    mask = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    y = compile(lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=mask))(q)
    y.nan_to_num().sum().backward()
    return {"y": y, "grad": q.grad}


# ---- parametrizations: buffers written in forward ----


@program
def spectral_norm(compile: Compile) -> dict[str, Any]:
    layer = parametrizations.spectral_norm(nn.Linear(4, 3))
    c = compile(layer)
    out: dict[str, Any] = {}
    for k in range(2):
        y = c(torch.randn(2, 4))
        y.pow(2).sum().backward()
        out[f"y{k}"] = y
    layer.eval()
    return {**out, "eval": c(torch.ones(1, 4)), **{n: b.clone() for n, b in layer.named_buffers()}, **grads(layer)}


@program
def weight_norm(compile: Compile) -> dict[str, Any]:
    layer = parametrizations.weight_norm(nn.Conv1d(2, 3, 2))
    x = torch.randn(2, 2, 5, requires_grad=True)
    y = compile(layer)(x)
    y.pow(2).sum().backward()
    return {"y": y, "x": x.grad, **grads(layer)}


@program
def moving_average_of_a_model(compile: Compile) -> dict[str, Any]:
    net, shadow = nn.Linear(3, 2), nn.Linear(3, 2)

    def update(decay: float) -> None:
        with torch.no_grad():
            for s, p in zip(shadow.parameters(), net.parameters(), strict=True):
                s.lerp_(p, 1 - decay)

    f = compile(update)
    for decay in (0.9, 0.99, 0.5):
        f(decay)
    return {n: p.detach() for n, p in shadow.named_parameters()}


@program
def buffers_replaced_in_forward(compile: Compile) -> dict[str, Any]:
    class Codebook(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))
            self.register_buffer("steps", torch.tensor(0, dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total = self.total * 0.5 + x.detach().sum(0)
            self.steps = self.steps + 1
            return x / (1 + self.total.abs()) * self.steps

    m = Codebook()
    c = compile(m)
    x = torch.randn(2, 3, requires_grad=True)
    ys = [c(x) for _ in range(3)]
    sum(ys).sum().backward()  # type: ignore[union-attr]  # a tensor
    return {"ys": ys, "x": x.grad, "total": m.total, "steps": m.steps, "names": sorted(dict(m.named_buffers()))}


# ---- what a model may return ----

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...]
    count: int


@program
def containers(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> Any:
        y = x.sin()
        return Output(y * 2, (y, x), 3), Pair(y.sum(), None), {"a": [y[0]], "b": collections.OrderedDict(c=y.exp())}

    x = torch.randn(3, requires_grad=True)
    output, pair, nested = compile(f)(x)
    (output.logits.sum() + pair.left + nested["b"]["c"].sum() + nested["a"][0]).backward()
    return {
        "types": [type(v).__name__ for v in (output, pair, nested, nested["b"])], "count": output.count,
        "all": [output.logits, list(output.hidden), pair.left, pair.right, nested["a"], nested["b"]["c"]],
        "grad": x.grad,
    }  # fmt: skip


@program
def convolutions(compile: Compile) -> dict[str, Any]:
    net = nn.Sequential(
        nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2), nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1),
        nn.GELU(), nn.Conv2d(4, 4, 3, dilation=2, padding="same", padding_mode="reflect"), nn.MaxPool2d(2),
        nn.Flatten(), nn.LazyLinear(3),
    )  # fmt: skip
    x = torch.randn(2, 4, 8, 8, requires_grad=True)
    net(x)
    y = compile(net)(x)
    y.pow(2).sum().backward()
    return {"y": y, "x": x.grad, **grads(net)}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(x)).relu())


def test_data_parallel_with_one_rank(tmp_path: Any) -> None:
    store = f"file://{tmp_path}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:

        def program(compile: Compile) -> dict[str, Any]:
            net = nn.parallel.DistributedDataParallel(Net())
            c = compile(net)
            out: dict[str, Any] = {}
            for k in range(2):
                net.zero_grad()
                y = c(torch.randn(3, 4))
                (y * torch.arange(2.0)).sum().backward()
                out[f"y{k}"] = y
            return {**out, **grads(net), "mean": net.module.norm.running_mean.clone()}

        agree(program)
    finally:
        torch.distributed.destroy_process_group()


def test_seed_example() -> None:
    """The two graphs of the smallest training step, with the loss outside, both on TVM."""

    def program(compile: Compile) -> dict[str, Any]:
        x, w, b = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True), torch.randn(4, requires_grad=True)
        y = compile(lambda x, w, b: torch.relu(x @ w + b))(x, w, b)
        (y - 1).pow(2).sum().backward()
        return {"y": y, "w": w.grad, "b": b.grad}

    records = agree(program)
    assert [str(r.kind) for r in records] == ["forward", "backward"]
