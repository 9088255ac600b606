# SPDX-License-Identifier: Apache-2.0
"""Values at the edges: promotion, accumulation, NaN, infinity, wrapped integers, indices, second outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.coverage.harness.numbers import float64_run
from tests.bridge.regressions import Compile, Programs, agree, grads, seen

program = Programs()
test_as_eager = program.test()


ODD = [0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e-40, 3.5, 2.5, -2.5, 1e30]


@program
def promotion(compile: Compile) -> dict[str, Any]:
    def f(
        i: torch.Tensor, b: torch.Tensor, h: torch.Tensor, x: torch.Tensor, z: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            i + b, i / 2, i // 2, i * 1.5, b + b, b * 2, h + x, h + z, h * 2.0, i + h, x + 1, i % 3, -i, b & (i > 0),
            i**2,
            torch.where(b, i, x), torch.where(b, h, 0.0), i.float() @ x.view(4, 1), i.sum(), b.sum(),
            i.to(torch.uint8).sum(),
            i.mean(dtype=torch.float64), torch.cat([i, x]), torch.stack([h.double(), x.double()]), i.bool().any(),
            h.sum(),
        )  # fmt: skip

    i = torch.tensor([-3, 0, 2, 7], dtype=torch.int32)
    args = (
        i,
        torch.tensor([True, False, True, True]),
        torch.randn(4).half(),
        torch.randn(4),
        torch.tensor(2.0, dtype=torch.float64),
    )
    return {"ys": compile(f)(*args)}


@program
def large_integers(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x + 1,
            x * 3,
            x // 7,
            x % 7,
            x >> 3,
            x.cumsum(0),
            x.sum(),
            s + s,
            s * 2,
            x == 2**53 + 1,
            x ^ 1,
            x.abs(),
            s.sum(),
            s.prod(),
        )

    x = torch.tensor([2**53 + 1, 2**62, -(2**62) - 5, 2**63 - 1, -(2**63)])
    return {"ys": compile(f)(x, torch.tensor([100, 127, -128, 50], dtype=torch.int8))}


@program
def odd_floats(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.relu(), x.clamp(-1, 2), torch.maximum(x, y), torch.minimum(x, y), x.max(), x.min(0), x.amax(0),
            x.argmax(), x.round(),
            x.sign(), x.isnan(), x.isinf(), x == y, x < y, x.sum(), x.softmax(0), x.logsumexp(0), x.sqrt(), x.exp(),
            x.log(),
            x.reciprocal(), x / y, x.floor(), x.trunc(), torch.fmod(x, 2.0), x % 2.0, x.nan_to_num(), x.sigmoid(),
            x.tanh(),
            torch.fmax(x, y), x.cumsum(0), x.abs(), x.sort(), torch.copysign(x, y), torch.hypot(x, y), x.erf(),
            F.silu(x),
        )  # fmt: skip

    x = torch.tensor(ODD)
    return {"ys": [seen(y) for y in compile(f)(x, x.flip(0))]}


@program
def what_a_simplifier_must_not_do(compile: Compile) -> dict[str, Any]:
    """x * 0, 0 / x, x - x and comparisons that a NaN makes false: algebra over reals is not algebra over floats."""

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        zero = torch.zeros(())
        return (
            x * 0.0, 0.0 / x, torch.zeros(12) * x, x * False, x * zero, torch.full((12,), 0.0) / x, x - x, x / x,
            x != x, x == x,
            ~(x < 0), ~(x < y), torch.logical_not(x >= y), ~(x == x), (x < y) | (x >= y), (x <= y) & (x > y), x * -0.0,
            torch.where(~(x > 0), 1.0, 2.0), torch.where(x <= x, 1, 0), (x * 1 == x).all(), x.double() * 0.0,
            x.half() * 0.0,
            x.to(torch.bfloat16) != x.to(torch.bfloat16),
        )  # fmt: skip

    x = torch.tensor(ODD)
    ys = compile(f)(x, x.flip(0))
    return {"ys": ys, "signs": [torch.signbit(y) for y in ys if y.is_floating_point()]}


@program
def differences_of_sums(compile: Compile) -> dict[str, Any]:
    """x - x and (x + y) - y within one kernel: TVM cancels them as it does for integers."""

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            (x - x).exp(), ((x + 1) - (x + 1)).abs(), ((x + 1e8) - 1e8) * 2, ((x + y) - y).neg(), ((y + x) - y).neg(),
            1 / x[:, None].sum(1),
            (x - (x + y)).abs(), (x - (y + x)).abs(), ((x.half() + 512) - 512).float(), (x.double() + 1e17) - 1e17,
        )  # fmt: skip

    odd = torch.tensor(ODD)
    numbers = torch.linspace(-2, 2, 37)
    return {"odd": compile(f)(odd, odd.flip(0)), "numbers": compile(f)(numbers, torch.full((37,), 1e7))}


@program
def gradients_at_odd_floats(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> torch.Tensor:
        parts = (
            x.relu(),
            x.abs(),
            x.clamp(-1, 1),
            x.sqrt(),
            F.leaky_relu(x),
            F.elu(x),
            F.hardtanh(x),
            F.softplus(x),
            F.gelu(x),
        )
        return sum(p.nan_to_num(0, 0, 0).sum() for p in parts) + x.max() + x.norm() * 0

    x = torch.tensor(ODD, requires_grad=True)
    compile(f)(x).backward()
    zero = torch.zeros(3, requires_grad=True)
    compile(lambda x: x.norm() + x.prod() + x.max() + x.amin(0) + x.std())(zero).backward()
    return {"x": x.grad, "zero": zero.grad}


@program
def ties(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.max(1),
            x.amax(1),
            x.max(),
            x.min(0),
            x.argmax(1),
            x.topk(2, 1).values,
            torch.maximum(x, x.flip(0)),
            x.cummax(1),
        )

    x = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], requires_grad=True)
    ys = compile(f)(x)
    (ys[0].values.sum() + ys[1].sum() * 2 + ys[2] * 3 + ys[3].values.sum() * 4 + ys[6].sum()).backward()
    return {"ys": seen([tuple(y) if isinstance(y, tuple) else y for y in ys]), "grad": x.grad}


@program
def float64_stays_float64(compile: Compile) -> dict[str, Any]:
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)).double()
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    y = compile(net)(x)
    (y * 3).sin().sum().backward()
    exact = {"y": y, "x": x.grad, **grads(net)}
    return {**exact, "digits": [(v * 1e9).round() if isinstance(v, torch.Tensor) else v for v in exact.values()]}


@program
def indices(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x[i], x[i, j], x[:, j], x[i[:, None], j], x[i, :, j], x[..., i], x[-1, 1:, None], x[i, 0], x[0, i],
            x[None, i],
            x[torch.tensor([[0, -1], [1, 1]])], x.index_select(1, i % 3),
            x.gather(0, i.view(1, 1, 4).expand(2, 3, 4) % 2), x[1:, ..., -2:],
        )  # fmt: skip

    x = torch.randn(3, 3, 4, requires_grad=True)
    i, j = torch.tensor([0, -1, 2, 2]), torch.tensor([1, -3, 1, 0])
    ys = compile(f)(x, i, j)
    sum((y * torch.arange(1.0, y.numel() + 1).view(y.shape)).sum() for y in ys).backward()
    return {"ys": ys, "grad": x.grad}


@program
def index_writes(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, v: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x.clone()
        a[i] = v
        b = x.index_put((i, i), v[:, 0], accumulate=True)
        c = x.index_add(0, i, v, alpha=2)
        d = x.scatter_add(0, i[:, None].expand(4, 3), v)
        e = x.clone()
        e[1:, 0] = 5
        e[-1] += v[0]
        g = x.index_copy(1, torch.tensor([2, 0]), v[:3, :2])
        return a, b, c, d, e, g, x.index_fill(0, torch.tensor([1]), 9.0), x.scatter(1, torch.tensor([[0], [2]]), 3.0)

    x, v = torch.randn(3, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    ys = compile(f)(x, v, torch.tensor([0, 2, 2, -3]) % 3)
    sum((y * torch.arange(9.0).view(3, 3)).sum() for y in ys[1:]).backward()
    return {"ys": ys, "x": x.grad, "v": v.grad}


@program
def scatter_reductions(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(
            x.scatter_reduce(0, i, v, r, include_self=s) for r in ("sum", "prod", "mean", "amax") for s in (True, False)
        )

    x, v = torch.randn(4, requires_grad=True), torch.randn(6, requires_grad=True)
    ys = compile(f)(x, torch.tensor([0, 1, 1, 3, 3, 3]), v)
    sum(y.sum() for y in ys).backward()
    return {"ys": ys, "x": x.grad, "v": v.grad}


@program
def bool_mask_index(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.clone()
        y[m] = 0
        return y, x.masked_fill(m, 3.0), torch.where(m, x, -x), x.masked_scatter(m, x.flip(0))

    x = torch.randn(3, 4, requires_grad=True)
    ys = compile(f)(x, x.detach() > 0)
    sum((y * y).sum() for y in ys[:3]).backward()
    return {"ys": [seen(y) for y in ys], "grad": x.grad}


@program
def embeddings(compile: Compile) -> dict[str, Any]:
    table = nn.Embedding(6, 3, padding_idx=2)
    bag = nn.Embedding(6, 3, padding_idx=-1)
    c = compile(lambda ids: (table(ids), bag(ids), F.embedding(ids, table.weight, padding_idx=None)))
    ids = torch.tensor([[0, 2, 5], [2, 5, 5]])
    a, b, d = c(ids)
    ((a * a).sum() + b.exp().sum() + d.sum()).backward()
    return {"ys": [a, b, d], **grads(table), "bag": bag.weight.grad, "int32": c(ids.int())[0]}


@program
def norms_and_their_statistics(compile: Compile) -> dict[str, Any]:
    net = nn.ModuleList(
        [nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True, track_running_stats=True)]
    )

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(m(x) for m in net) + (
            F.layer_norm(x, x.shape[2:]),
            F.rms_norm(x, (5,)),
            F.local_response_norm(x, 2),
        )

    x = torch.randn(3, 4, 5, 5, requires_grad=True)
    ys = compile(f)(x)
    sum((y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum() for y in ys).backward()
    stats = torch.var_mean(x.detach(), 1), torch.std_mean(x.detach())
    found = compile(lambda x: (torch.var_mean(x, 1), torch.std_mean(x)))(x.detach())
    return {
        "ys": ys,
        "x": x.grad,
        **grads(net),
        **{n: b.clone() for n, b in net.named_buffers()},
        "stats": [seen(s) for p in (found, stats) for q in p for s in q],
    }


class Each(nn.Module):
    """Every module on the same input."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.each = nn.ModuleList(modules)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(m(x) for m in self.each)


@program
def batch_norm_without_statistics_or_weights(compile: Compile) -> dict[str, Any]:
    net = nn.ModuleList(
        [nn.BatchNorm1d(4, momentum=0.3), nn.BatchNorm1d(4, track_running_stats=False), nn.BatchNorm1d(4, affine=False)]
    )
    c = compile(Each(net))
    for _ in range(3):
        ys = c(torch.randn(5, 4))
    net.eval()
    return {"ys": ys, "eval": c(torch.randn(3, 4)), **{n: b.clone() for n, b in net.named_buffers()}}


@program
def pool_indices(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, i = F.max_pool2d(x, 3, 2, 1, return_indices=True)
        return (
            y,
            i,
            F.max_unpool2d(y, i, 3, 2, 1, output_size=x.shape[2:]),
            F.adaptive_max_pool2d(x, 2),
            F.avg_pool2d(x, 3, 2, 1, True, False),
        )

    x = torch.randn(2, 3, 7, 7, requires_grad=True)
    ys = compile(f)(x)
    (ys[0].pow(2).sum() + ys[3].sum() + ys[4].sin().sum()).backward()
    return {"ys": ys, "grad": x.grad}


@program
def sorts_and_their_indices(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor) -> tuple[Any, ...]:
        return x.sort(1, descending=True), x.topk(2), x.argsort(0), x.kthvalue(2), x.median(1), x.cummax(0), x.cummin(1)

    x = torch.randn(3, 5, requires_grad=True)
    ys = compile(f)(x)
    sum(
        (y[0] * torch.arange(1.0, y[0].numel() + 1).view(y[0].shape)).sum() for y in ys if isinstance(y, tuple)
    ).backward()
    return {"ys": seen([tuple(y) if isinstance(y, tuple) else y for y in ys]), "grad": x.grad}


@program
def losses_with_ignored_targets(compile: Compile) -> dict[str, Any]:
    def f(x: torch.Tensor, t: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.cross_entropy(x, t, ignore_index=-100), F.cross_entropy(x, t, w, reduction="none"),
            F.nll_loss(x, t, reduction="sum"),
            F.cross_entropy(x, x.softmax(1).detach(), label_smoothing=0.2),
            F.kl_div(x, x.softmax(1), reduction="batchmean"),
            F.smooth_l1_loss(x, x.flip(0)), F.binary_cross_entropy_with_logits(x, (x > 0).float(), pos_weight=w),
        )  # fmt: skip

    x = torch.randn(4, 3, requires_grad=True)
    ys = compile(f)(x, torch.tensor([0, -100, 2, 1]), torch.tensor([1.0, 2.0, 0.5]))
    sum(y.sum() for y in ys).backward()
    return {"ys": ys, "grad": x.grad}


@program
def every_target_ignored(compile: Compile) -> dict[str, Any]:
    x = torch.randn(2, 3, requires_grad=True)
    y = compile(lambda x, t: F.cross_entropy(x, t))(x, torch.tensor([-100, -100]))
    y.backward()
    return {"y": y, "grad": x.grad}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_models(dtype: torch.dtype) -> None:
    def program(compile: Compile, widen: torch.dtype = dtype) -> dict[str, Any]:
        net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8)).to(dtype).to(widen)
        x = torch.randn(4, 16, dtype=dtype).to(widen).requires_grad_()
        y = compile(net)(x)
        F.cross_entropy(y.to(torch.promote_types(widen, torch.float32)), torch.tensor([0, 3, 7, 1])).backward()
        return {"y": y, "x": x.grad, **grads(net)}

    agree(program, exact=partial(program, widen=torch.float64))


def test_autocast() -> None:
    def program(compile: Compile, enabled: bool = True) -> dict[str, Any]:
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
        x = torch.randn(4, 3, 8, 8, requires_grad=True)
        c = compile(net)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            y = c(x)
            loss = F.cross_entropy(y, torch.tensor([0, 1, 2, 3]))
        loss.backward()
        plain = c(x)
        return {"y": y, "loss": loss, "x": x.grad, "plain": plain, **grads(net), "mean": net[1].running_mean.clone()}

    def exact(compile: Compile) -> dict[str, Any]:
        with float64_run():
            return program(compile, enabled=False)

    agree(program, exact=exact)


def _orthogonal(gradient: torch.Tensor, coefficients: tuple[float, ...], steps: int, eps: float) -> torch.Tensor:
    """Muon's Newton-Schulz iteration (torch/optim/_muon.py) without its rounding to bfloat16."""
    a, b, c = coefficients
    wide = gradient.shape[0] <= gradient.shape[1]
    x = gradient.double() if wide else gradient.double().T
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.T


def _muon(step: Compile, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(32, 24).to(dtype)), nn.Parameter(torch.randn(16, 32).to(dtype))]
    optimizer = torch.optim.Muon(parameters, lr=1e-2)
    run = step(optimizer.step)
    for _ in range(6):
        for p in parameters:
            p.grad = torch.randn(p.shape).to(dtype)
        run()
    return [p.detach().double() for p in parameters]


def test_muon_is_as_far_from_float64_as_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """The iteration multiplies in bfloat16 and amplifies roundings: two right runs differ, their errors do not."""
    eager = _muon(lambda step: step, torch.float32)
    with record_graphs() as records:
        found = _muon(lambda step: torch.compile(step, backend=relaxgrad), torch.float32)
    monkeypatch.setattr("torch.optim._muon._zeropower_via_newtonschulz", _orthogonal)
    reference = _muon(lambda step: step, torch.float64)
    assert sum(record.kernels for record in records), "nothing was compiled"
    for right, theirs, ours in zip(reference, eager, found, strict=True):
        error, limit = (ours - right).square().mean().sqrt(), (theirs - right).square().mean().sqrt()
        assert 0 < error <= 2 * limit, f"{error:.2e}, eager's is {limit:.2e}"
