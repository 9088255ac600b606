# SPDX-License-Identifier: Apache-2.0
"""Small tensors that a forward graph saves go to the backward graph in packs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.capture import coalesce
from relaxgrad.bridge.plan import FromFunction
from relaxgrad.bridge.runtime.executable import Executable

STEPS = 12


def recurrence(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Saves two tensors of one shape each step, one of them as its transpose, and `w`."""
    h = torch.zeros_like(x)
    for _ in range(STEPS):
        h = torch.tanh(h @ w / 8 + x).sin()
    return h


def trained(function: Callable[..., torch.Tensor], *sizes: tuple[int, ...], retain: bool = False) -> list[Any]:
    torch.manual_seed(0)
    given = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]
    found = []
    for _ in range(2):
        y = function(*given)
        loss = (y * torch.arange(float(y.numel())).view_as(y)).sum()
        loss.backward(retain_graph=retain)
        if retain:
            loss.backward()
        found.append(y.detach())
    return [*found, *(t.grad for t in given)]


def compare(function: Callable[..., torch.Tensor], *sizes: tuple[int, ...], **kwargs: Any) -> list[Executable]:
    """The function trains as eager does; the compiled graphs, the forward one first."""
    torch.compiler.reset()
    before = set(Executable.live)
    found = trained(torch.compile(function, backend=relaxgrad, options={"cache": "off"}), *sizes, **kwargs)
    expected = trained(function, *sizes, **kwargs)
    assert all(e.abs().sum() > 0 for e in expected)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    return sorted(set(Executable.live) - before, key=lambda e: e.record.kind.value, reverse=True)


def test_small_tensors_of_one_shape_are_one_output() -> None:
    forward, backward = compare(recurrence, (4, 8), (8, 8))
    assert forward.record.kind.value == "forward"
    assert forward.plan.result_count < STEPS
    assert len(backward.plan.split_inputs) >= 1
    assert len(backward.plan.params) >= STEPS  # the parts enter one by one


def test_large_ones_and_few_ones_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    side = 1 + int((coalesce.SMALL / 8) ** 0.5)
    assert all(not e.plan.split_inputs for e in compare(recurrence, (side, side), (side, side)))
    monkeypatch.setattr(coalesce, "FEWEST", 10 * STEPS)
    assert all(not e.plan.split_inputs for e in compare(recurrence, (4, 8), (8, 8)))


def test_a_view_of_a_part_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product's gradient needs h transposed: the graph saves that, and the pack has h."""

    def views(forward: Executable) -> list[tuple[Any, ...]]:
        plans = [plan for plan in forward.plan.outputs if isinstance(plan, FromFunction)]
        return [tuple(plan.view.size) for plan in plans if plan.view is not None]

    assert (8, 4) not in views(compare(recurrence, (4, 8), (8, 8))[0])
    monkeypatch.setattr(coalesce, "FEWEST", 10 * STEPS)
    assert (8, 4) in views(compare(recurrence, (4, 8), (8, 8))[0])


def test_long_recurrences_have_several_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce, "FEWEST", 3)
    monkeypatch.setattr(coalesce, "MOST", 4)
    _, backward = compare(recurrence, (2, 3), (3, 3))
    assert len(backward.plan.split_inputs) >= STEPS // 4


def test_the_backward_may_run_twice() -> None:
    _, backward = compare(recurrence, (4, 8), (8, 8), retain=True)
    assert backward.plan.split_inputs


def test_symbolic_sizes_are_not_packed() -> None:
    torch.compiler.reset()
    w = torch.randn(8, 8, dtype=torch.float64, requires_grad=True)
    before = set(Executable.live)
    compiled = torch.compile(recurrence, backend=relaxgrad, options={"cache": "off"}, dynamic=True)
    for rows in (4, 6):
        x = torch.randn(rows, 8, dtype=torch.float64)
        (found,) = torch.autograd.grad(compiled(x, w).sum(), w)
        (expected,) = torch.autograd.grad(recurrence(x, w).sum(), w)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    graphs = set(Executable.live) - before
    assert len(graphs) >= 2
    assert not any(e.plan.split_inputs for e in graphs)


def test_saved_tensor_hooks_see_the_packs() -> None:
    """A hook may move and copy what is saved: here it hands back another tensor, laid out another way."""
    shapes = []

    def pack(t: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(t.shape))
        return t.detach().clone().mT.contiguous() if t.dim() > 2 else t.detach().clone()

    def unpack(t: torch.Tensor) -> torch.Tensor:
        return t.mT if t.dim() > 2 else t

    def hooked(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def call(*args: torch.Tensor) -> torch.Tensor:
            is_ours = function is not recurrence
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack) if is_ours else contextlib.nullcontext():
                return function(*args)

        return call

    torch.compiler.reset()
    compiled = torch.compile(recurrence, backend=relaxgrad, options={"cache": "off"})
    found = trained(hooked(compiled), (4, 8), (8, 8))
    torch.testing.assert_close(found, trained(recurrence, (4, 8), (8, 8)), rtol=1e-10, atol=1e-10)
    assert any(shape[1:] == (4, 8) and shape[0] >= coalesce.FEWEST for shape in shapes)


class Held(torch.autograd.Function):
    """Computes its gradient in the forward, as fused losses do."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        g = x @ a
        ctx.save_for_backward(g)
        return (g * g).sum()

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        return ctx.saved_tensors[0], None


def test_a_saved_gradient_is_no_part_of_a_pack() -> None:
    """It would share its memory with the pack, and an optimizer's write would spoil what is saved."""

    def f(a: torch.Tensor, *xs: torch.Tensor) -> torch.Tensor:
        return torch.stack([Held.apply(x, a) for x in xs]).sum()

    results = []
    for compiled in (True, False):
        torch.compiler.reset()
        torch.manual_seed(0)
        a, xs = torch.randn(8, 8), [torch.randn(8, 8, requires_grad=True) for _ in range(STEPS)]
        loss = (torch.compile(f, backend=relaxgrad, options={"cache": "off"}) if compiled else f)(a, *xs)
        loss.backward(retain_graph=True)
        for x in xs:
            assert x.grad is not None
            assert x.grad.untyped_storage().nbytes() == 4 * 64
            x.grad.zero_()
        loss.backward()
        results.append([x.grad for x in xs])
    torch.testing.assert_close(results[0], results[1])


def test_views_by_symbolic_sizes_and_complex_numbers_stay() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ws = nn.ParameterList([torch.randn(4, 8) for _ in range(STEPS)])
            self.register_buffer("a", torch.randn(8, 8) / 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = x
            for w in self.ws:
                h = (h * (w @ self.a).view(x.shape[0], -1)).sin()
            return h

    torch.manual_seed(0)
    model, x = Model(), torch.randn(4, 8)
    run = torch.compile(model, backend=relaxgrad, options={"cache": "off"}, dynamic=True)
    found = torch.autograd.grad(run(x).square().sum(), list(model.parameters()))
    expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    torch.testing.assert_close(found, expected)

    def turns(z: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(STEPS):
            z = z * (w @ z) / 4
        return z.real

    torch.compiler.reset()
    z, w = (torch.randn(4, 4, dtype=torch.complex64, requires_grad=True) for _ in range(2))
    with record_graphs() as records:
        found = torch.autograd.grad(
            torch.compile(turns, backend=relaxgrad, options={"cache": "off"})(z, w).sum(), [z, w]
        )
    torch.testing.assert_close(found, torch.autograd.grad(turns(z, w).sum(), [z, w]))
    assert not any("cat" in op or "unbind" in op for record in records for op in record.ops)


def test_checkpointed_and_written_state_is_right() -> None:
    """Recomputed blocks and buffers that are written, next to packs."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)
            self.register_buffer("seen", torch.zeros(8))

        def block(self, h: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.inner(h)).sin()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = x
            for step in range(STEPS):
                again = step % 3 == 0
                h = torch.utils.checkpoint.checkpoint(self.block, h, use_reentrant=False) if again else self.block(h)
                self.seen.add_(h.detach().mean(0))
            return h

    results = []
    for compiled in (True, False):
        torch.compiler.reset()
        torch.manual_seed(1)
        model = Model().double()
        run = torch.compile(model, backend=relaxgrad, options={"cache": "off"}) if compiled else model
        x = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
        before = set(Executable.live)
        for _ in range(2):
            (run(x) ** 2).sum().backward()
        results.append([x.grad, model.seen, *(p.grad for p in model.parameters())])
        assert any(e.plan.split_inputs for e in set(Executable.live) - before) is compiled
    torch.testing.assert_close(results[0], results[1], rtol=1e-10, atol=1e-10)
