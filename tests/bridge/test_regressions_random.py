# SPDX-License-Identifier: Apache-2.0
"""Random numbers: the masks of eager bit by bit, fresh ones each call, the same in forward and backward."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.bridge.regressions import Compile, Programs, agree, grads, seen

program = Programs()
test_as_eager = program.test()


@program
def dropout_masks(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x, 0.3).relu(), 0.5) * x

    g = compile(f)
    out: dict[str, Any] = {}
    for k in range(3):
        x = torch.ones(4, 6, requires_grad=True)
        y = g(x)
        y.sum().backward()
        out[f"y{k}"], out[f"grad{k}"] = y, x.grad
    out["state"] = torch.get_rng_state()
    torch.manual_seed(7)
    out["again"] = g(torch.ones(4, 6))
    return out


@program
def dropout_of_permuted_and_strided(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.dropout(x.permute(2, 0, 1), 0.4),
            F.dropout(x[:, ::2], 0.4),
            F.dropout1d(x),
            F.dropout2d(x.unsqueeze(0)),
            F.alpha_dropout(x, 0.2),
        )

    x = torch.randn(3, 4, 5, requires_grad=True)
    ys = compile(f)(x)
    sum((y * y).sum() for y in ys).backward()
    return {"ys": [seen(y) for y in ys], "grad": x.grad}


@program
def dropout_edges(compile: Compile) -> dict[str, Any]:
    x = torch.randn(4, requires_grad=True)
    ys = compile(
        lambda x: (F.dropout(x, 0.0), F.dropout(x, 1.0), F.dropout(x, 0.5, training=False), F.dropout(x[:0], 0.5))
    )(x)
    sum(y.sum() for y in ys).backward()
    return {"ys": [seen(y) for y in ys], "grad": x.grad}


@program
def draws_of_every_kind(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.rand(3, 2) * x, torch.randn(2, 2), torch.rand_like(x), torch.randn_like(x) + x,
            torch.randint(0, 9, (5,)),
            torch.randperm(6), torch.bernoulli(x.sigmoid()), torch.multinomial(x.abs().view(-1), 3),
            torch.empty(4).uniform_(-1, 1), torch.empty(4).normal_(1, 2), torch.empty(3).exponential_(),
            torch.randint_like(x, 5), torch.normal(x, 0.1), torch.rand(2, dtype=torch.float64),
        )  # fmt: skip

    g = compile(f)
    x = torch.randn(3, 2)
    return {"one": g(x), "two": g(x), "state": torch.get_rng_state()}


@program
def rrelu(compile: Compile) -> dict[str, Any]:
    m = nn.RReLU(0.1, 0.3)
    c = compile(m)
    x = torch.randn(4, 5, requires_grad=True)
    y = c(x)
    y.sum().backward()
    m.eval()
    return {"y": y, "grad": x.grad, "eval": c(x)}


@program
def checkpoint_with_dropout(compile: Compile) -> dict[str, Any]:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 6)

        def block(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(self.b(F.dropout(self.a(x).relu(), 0.5)), 0.2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = checkpoint(self.block, x, use_reentrant=False)
            return checkpoint(self.block, F.dropout(x, 0.1), use_reentrant=False)

    net = Net()
    c = compile(net)
    x = torch.randn(4, 6, requires_grad=True)
    out: dict[str, Any] = {}
    for k in range(2):
        y = c(x)
        y.pow(2).sum().backward()
        out[f"y{k}"] = y
    return {**out, "x": x.grad, **grads(net), "state": torch.get_rng_state()}


@program
def transformer_layer_with_dropout(compile: Compile) -> dict[str, Any]:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
    c = compile(layer)
    x = torch.randn(2, 5, 8, requires_grad=True)
    y = c(x)
    (y * torch.arange(8.0)).sum().backward()
    layer.eval()
    z = c(x)
    layer.train()
    w = c(x)
    return {"y": y, "z": z, "w": w, "grad": x.grad, **grads(layer)}


@program
def attention_with_dropout(compile: Compile) -> dict[str, Any]:
    q, k, v = (torch.randn(2, 2, 5, 4, requires_grad=True) for _ in range(3))
    f = compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.4, is_causal=True))
    y = f(q, k, v)
    y.pow(2).sum().backward()
    return {"y": y, "q": q.grad, "k": k.grad, "v": v.grad, "state": torch.get_rng_state()}


@program
def user_generator_outside(compile: Compile) -> dict[str, Any]:
    """The caller's own draws between the calls see the generator where eager leaves it."""
    g = compile(lambda x: F.dropout(x, 0.5))
    x = torch.ones(5)
    out = [g(x), torch.rand(2), g(x), torch.rand(1)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        out.append(g(x))
    return {"out": [*out, g(x)]}


@program
def symbolic_sizes(compile: Compile) -> dict[str, Any]:
    g = compile(lambda x: (F.dropout(x, 0.5), torch.rand(x.shape[0], 2), torch.randperm(x.shape[0] * 2)))
    out: dict[str, Any] = {}
    for n in (4, 6, 3):
        x = torch.ones(n, 3, requires_grad=True)
        ys = g(x)
        ys[0].sum().backward()
        out[f"ys{n}"], out[f"grad{n}"] = ys, x.grad
    return out


@program
def gumbel_and_sampling(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.gumbel_softmax(x, tau=0.7), F.gumbel_softmax(x, hard=True), x + torch.randn_like(x) * 0.1

    x = torch.randn(3, 4, requires_grad=True)
    ys = compile(f)(x)
    sum((y * torch.arange(4.0)).sum() for y in ys).backward()
    return {"ys": ys, "grad": x.grad}


def test_masks_of_halves() -> None:
    """The masks are eager's; the values differ where a fused kernel keeps more bits between two ops."""

    def program(compile: Compile, dtype: torch.dtype = torch.bfloat16) -> dict[str, Any]:
        wide = torch.promote_types(dtype, torch.float32)
        g = compile(lambda x: (F.dropout(x, 0.25).to(wide).exp(), torch.rand_like(x)))
        x = torch.randn(3, 8).to(torch.bfloat16).to(dtype).requires_grad_()
        y, r = g(x)
        y.sum().backward()
        return {"y": y, "r": r, "grad": x.grad, "kept": x.grad != 0}

    agree(program, exact=partial(program, dtype=torch.float64))
