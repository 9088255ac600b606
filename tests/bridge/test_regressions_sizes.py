# SPDX-License-Identifier: Apache-2.0
"""Symbolic sizes: as numbers, as arguments, derived, and graphs that stay few when sizes vary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from relaxgrad.bridge.backend import relaxgrad
from relaxgrad.bridge.errors import RelaxgradError
from relaxgrad.bridge.runtime.executable import Executable
from relaxgrad.bridge.schemas import GraphKind
from tests.bridge.regressions import Compile, Program, agree, grads

#: A function of tensors that need gradients, and of sizes n and m.
Case = Callable[..., Any]
#: Forward graphs, with any backend, of cases in which tracing itself guards on how sizes compare.
GUARDED = {"slices": 2, "joins": 2, "made_from_sizes": 3}
CASES: dict[str, tuple[Case, Callable[[int, int], tuple[Any, ...]]]] = {}


def case(*shapes: tuple[Any, ...]) -> Callable[[Case], Case]:
    """Registers a function of tensors; sizes are ints, or functions of (n, m)."""

    def make(n: int, m: int) -> tuple[Any, ...]:
        torch.manual_seed(n * 100 + m)
        sizes = [[s(n, m) if callable(s) else s for s in shape] for shape in shapes]
        return tuple(torch.randn(s, requires_grad=True) for s in sizes)

    def add(function: Case) -> Case:
        CASES[function.__name__] = (function, make)
        return function

    return add


def n_(n: int, m: int) -> int:
    return n


def m_(n: int, m: int) -> int:
    return m


def both(n: int, m: int) -> int:
    return n * m


def twice(n: int, m: int) -> int:
    return 2 * n


def _last(x: torch.Tensor) -> torch.Tensor:
    return x[-5:] * 2


def _overwritten(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[-5:] = v
    return x * 3


def _half(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x[: x.shape[0] // 2] * y + x[: x.shape[0] // 2].expand(y.shape[0])


def _half_index(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    i = i[: i.shape[0] // 2]
    return x.index_put((i, v), torch.tensor(1.0)) + x[i, v].sum()


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (_last, [(3,), (9,), (5,)]),
        (lambda x, k: x[k:] * 2, [(8, -3), (6, -30), (9, 2)]),
        (lambda x, k: x[k] * 2, [(8, -2), (6, 3), (5, -5)]),
        (_overwritten, [(3, 3), (9, 5)]),
        (_half, [(3, 100), (3, 7)]),  # the half of three is one, and is broadcast
    ],
    ids=["the last of fewer", "a start from the end", "a place from the end", "written from the end", "half of three"],
)
def test_slices_are_clamped_and_derived_sizes_broadcast(function: Any, inputs: list[tuple[int, ...]]) -> None:
    compiled = torch.compile(function, backend=relaxgrad, dynamic=True)
    for numbers in inputs:
        tensors = [torch.randn(numbers[0], requires_grad=True)]
        two = function in (_overwritten, _half)
        rest: list[Any] = [torch.randn(n) if two else n for n in numbers[1:]]
        results, gradients = [], []
        for run in (function, compiled):
            result = run(*tensors, *rest)
            results.append(result)
            gradients.append(torch.autograd.grad(result.square().sum(), tensors)[0])
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*gradients)


def test_index_tensors_of_a_derived_size_broadcast() -> None:
    compiled = torch.compile(_half_index, backend=relaxgrad, dynamic=True)
    x, i = torch.randn(5, 9), torch.tensor([2, 1, 0])
    for n in (7, 4):
        given = x, i, torch.arange(n)
        torch.testing.assert_close(compiled(*given), _half_index(*given))


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str) -> None:
    function, make = CASES[name]

    def program(compile: Compile) -> dict[str, Any]:
        compiled = compile(function)
        out: dict[str, Any] = {}
        for n, m in ((4, 6), (5, 8), (6, 7)):
            args = make(n, m)
            ys = compiled(*args)
            ys = ys if isinstance(ys, tuple) else (ys,)
            loss = sum(
                (y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum()
                for y in ys
                if isinstance(y, torch.Tensor) and y.requires_grad
            )
            loss.backward()
            out[f"{n} {m}"] = [ys, [a.grad for a in args]]
        return out

    records = agree(program, dynamic=True)
    assert len(records) == 2 * GUARDED.get(name, 1), "recompiled"


@case((n_, 3), (3, m_))
def matmul_and_numbers(x: torch.Tensor, w: torch.Tensor) -> Any:
    n, m = x.shape[0], w.shape[1]
    return x @ w / n, (x.sum() * m, n, m, n * m, n // 2, n / m), torch.full((n,), 1.0 / m) * x[:, 0], x.sum(0) / n**0.5


@case((twice, 3))
def halves_of_a_size(x: torch.Tensor) -> Any:
    n = x.shape[0] // 2
    return x[:n] + x[n:], x.view(n, 2, 3).sum(1), x.reshape(n, 6), x.view(-1), torch.cat([x[n:], x[:n]]).sin()


@case((both,), (n_, m_))
def products_of_sizes(flat: torch.Tensor, x: torch.Tensor) -> Any:
    n, m = x.shape
    return (
        flat.view(n, m) * x,
        x.flatten() + flat,
        x.t().reshape(-1),
        flat.view(m, n).sum(1),
        x.repeat(2, 3),
        x.unsqueeze(1).expand(n, 2, m).reshape(2 * n, m),
    )


@case((n_, m_))
def reductions(x: torch.Tensor) -> Any:
    return (
        x.sum(0),
        x.mean(1),
        x.softmax(0),
        x.softmax(1),
        x.var(1, correction=0),
        x.amax(0),
        x.logsumexp(1),
        x.cumsum(0),
        x.norm(dim=1),
        x.prod(1),
    )


@case((n_, m_))
def slices(x: torch.Tensor) -> Any:
    n, m = x.shape
    return (
        x[: n // 2 + 1],
        x[-1],
        x[:, 1 : m - 0],
        x[::2],
        x[:, m // 2],
        x.narrow(1, 0, m - 1),
        x.flip(0),
        x.roll(1, 0),
        x.tril(),
        x[:, -2:],
    )


@case((n_, 4), (m_, 4))
def joins(x: torch.Tensor, y: torch.Tensor) -> Any:
    both = torch.cat([x, y, x])
    parts = both.split([x.shape[0], y.shape[0] + x.shape[0]])
    return (
        both * 2,
        parts[1],
        torch.stack([x, x.sin()], 1),
        F.pad(x, (1, 2, 0, 3)),
        x @ y.t(),
        torch.einsum("ni,mi->nm", x, y),
        both.chunk(2)[0],
    )


@case((n_, 3, 5, m_))
def images(x: torch.Tensor) -> Any:
    return (
        F.avg_pool2d(x, (2, 1)),
        x.permute(0, 2, 3, 1).contiguous(),
        x.flatten(1),
        F.interpolate(x, scale_factor=2.0),
        F.conv2d(x, torch.ones(2, 3, 3, 2) * 0.1),
    )


@case((n_, m_, 8))
def attention(x: torch.Tensor) -> Any:
    q = x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)
    causal = F.scaled_dot_product_attention(q, q * 0.5, q + 1, is_causal=True)
    mask = torch.arange(x.shape[1]) < (x.shape[1] + 1) // 2
    masked = F.scaled_dot_product_attention(q, q, q, attn_mask=mask[None, :].expand(x.shape[1], -1))
    return causal.transpose(1, 2).reshape(x.shape), masked


@case((n_, m_))
def made_from_sizes(x: torch.Tensor) -> Any:
    n, m = x.shape
    return (
        x + torch.arange(m), x * torch.linspace(0, 1, n)[:, None], x + torch.eye(n, m), torch.zeros(n, 2),
        x.new_ones(m) * x,
        torch.arange(0, n * m).view(n, m) * x, x[torch.arange(n), torch.arange(n) % m],
        F.one_hot(torch.arange(n) % 3, 3),
    )  # fmt: skip


def test_numbers_that_vary() -> None:
    """Python ints and floats of the caller become symbols as well."""

    def program(compile: Compile) -> dict[str, Any]:
        f = compile(lambda x, k, s: (x * k + s, torch.full((3,), s), x[:k], torch.arange(k) * s, k + 1, s * 2))
        out: dict[str, Any] = {}
        for k, s in ((2, 0.5), (3, 0.25), (4, 2.0), (2, 1.5)):
            x = torch.arange(5.0, requires_grad=True)
            ys = f(x, k, s)
            (ys[0].sum() + ys[2].sum()).backward()
            out[f"{k} {s}"] = [ys, x.grad]
        return out

    agree(program)


def test_few_graphs_for_many_sizes() -> None:
    def program(compile: Compile) -> dict[str, Any]:
        net = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 3))
        c = compile(net)
        out: dict[str, Any] = {}
        for k, n in enumerate((8, 8, 3, 1, 8, 64, 5)):
            y = c(torch.randn(n, 6))
            F.cross_entropy(y, torch.arange(n) % 3).backward()
            out[f"y{k}"] = y
        return {**out, **grads(net)}

    kinds = Counter(r.kind for r in agree(program))
    assert kinds[GraphKind.FORWARD] <= 3
    assert kinds[GraphKind.BACKWARD] <= 3


def test_dynamic_from_the_start() -> None:
    def program(compile: Compile) -> dict[str, Any]:
        f = compile(lambda x, y: ((x[:, None] * y).sum(1), x.shape[0]))
        out: dict[str, Any] = {}
        for n in (3, 7, 2):
            x, y = torch.randn(n, requires_grad=True), torch.randn(n, 4)
            z, size = f(x, y)
            z.sum().backward()
            out[f"{n}"] = [z, size, x.grad]
        return out

    records = agree(program, dynamic=True)
    assert len(records) == 2
    assert all(r.symbolic for r in records)


PROGRAMS: list[Program] = []


def program(function: Program) -> Program:
    PROGRAMS.append(function)
    return function


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_programs(function: Program) -> None:
    agree(function)


@program
def recurrent_state_grows(compile: Compile) -> dict[str, Any]:
    """A cache that grows by one row a call, as in generation."""
    w = torch.randn(4, 4, requires_grad=True)

    def step(cache: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cache = torch.cat([cache, (x @ w)[None]])
        return cache, (cache.softmax(0) * cache).sum(0)

    f = compile(step)
    cache, x = torch.zeros(1, 4), torch.randn(4)
    for _ in range(5):
        cache, x = f(cache, x, w)
    x.sum().backward()
    return {"cache": cache, "grad": w.grad}


@program
def sizes_that_become_zero(compile: Compile) -> dict[str, Any]:
    f = compile(lambda x, w: ((x @ w).relu(), (x * 2).sum(0), x.shape[0]))
    out: dict[str, Any] = {}
    w = torch.randn(3, 2, requires_grad=True)
    for n in (4, 6, 0, 1, 5):
        x = torch.randn(n, 3, requires_grad=True)
        y, s, size = f(x, w)
        (y.sum() + s.sum()).backward()
        out[f"{n}"] = [y, s, size, x.grad]
    return {**out, "w": w.grad}


class Ragged(nn.Module):
    """Works on a jagged nested tensor, and returns one that has its ragged size moved."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.inner(x)
        return x + self.outer(torch.tanh(hidden)), hidden.unflatten(-1, (3, 4)).transpose(1, 2)


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_jagged_tensor_trains_with_other_lengths_and_another_batch(dynamic: bool | None) -> None:
    def program(compile: Compile) -> dict[str, Any]:
        torch.manual_seed(0)
        model = Ragged()
        run, seen = compile(model), {}
        for number, ends in enumerate([[0, 5, 11], [0, 2, 3, 9], [0, 1, 2, 4, 12]]):
            values = torch.randn(ends[-1], 8, requires_grad=True)
            model.zero_grad()
            out, parts = run(torch.nested.nested_tensor_from_jagged(values, torch.tensor(ends)))
            (out.values().square().sum() + parts.values().sin().sum()).backward()
            results = {"out": out.values().detach(), "parts": parts.values().detach(), "grad": values.grad}
            seen.update({f"{number} {k}": v for k, v in {**results, **grads(model)}.items()})
        return seen

    records = agree(program, dynamic=dynamic)
    assert any(r.kind is GraphKind.BACKWARD for r in records)


def test_a_size_that_is_no_int_is_named() -> None:
    captured: list[Executable] = []

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * x.shape[0]

    before = set(Executable.live)
    torch.compile(double, backend=relaxgrad, dynamic=True)(torch.ones(3, 2))
    captured += [e for e in Executable.live if e not in before]
    ragged = torch.nested.nested_tensor_from_jagged(torch.ones(3, 2), torch.tensor([0, 1, 3])).shape[1]
    (executable,) = captured
    given = [ragged if source.dim is None else 3 for source in executable.plan.sources]
    assert ragged in given, "the size enters through a tensor"
    inputs: list[Any] = [torch.ones(3, 2)] * executable.plan.input_count
    for source in executable.plan.sources:
        if source.dim is None:
            inputs[source.index] = ragged
    with pytest.raises(RelaxgradError, match=r"input \d of a compiled graph gives size s\d+ the value j\d+ \(SymInt\)"):
        executable(inputs)
