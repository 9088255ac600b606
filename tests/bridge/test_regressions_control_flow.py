# SPDX-License-Identifier: Apache-2.0
"""Control flow with graphs for bodies: each op runs in ATen inside the compiled graph, with a reason, and trains."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan

from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.kinds import ReasonKind
from tests.bridge.regressions import Compile, agree

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def scanned(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The body saves its own output for its gradient."""

    def step(carry: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        carry = torch.tanh(carry @ w + row)
        return carry, carry * 2

    last, rows = scan(step, x.new_zeros(3), x)
    return last.sum() + rows.square().sum()


def mapped(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return map_rows(lambda row, w: torch.tanh(row @ w), x, w).square().sum()


def branched(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x, w: torch.tanh(x @ w), lambda x, w: (x @ w).cos(), (x, w)).sum()


def combined(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    rows = associative_scan(lambda a, b: torch.tanh(a + b), x @ w, 0, combine_mode="generic")
    return rows.square().sum()


@pytest.mark.parametrize(
    ("loss", "fallbacks"),
    [(scanned, ["scan"]), (mapped, ["map_impl"]), (branched, ["cond"]), (combined, [])],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_control_flow_trains(loss: Loss, fallbacks: list[str]) -> None:
    def program(compile: Compile, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
        run, seen = compile(loss), {}
        for step in range(2):
            torch.manual_seed(step)
            x, w = (torch.randn(shape).to(dtype).requires_grad_() for shape in ((5, 3), (3, 3)))
            value = run(x, w)
            value.backward()
            seen.update({f"{step} value": value.detach(), f"{step} x": x.grad, f"{step} w": w.grad})
        return seen

    exact = partial(program, dtype=torch.float64)
    agree(program, exact=exact, fallbacks=fallbacks, fullgraph=True)


def loop(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    start = (torch.zeros((), dtype=torch.int64), x)
    return while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, torch.tanh(a @ w)), start)[1].sum()


def test_a_while_loop_that_trains_says_which_node_keeps_its_graph_in_aten() -> None:
    """How often it runs depends on data, and the stack of what it saves has a size that does."""
    torch.manual_seed(0)
    x, w = torch.randn(5, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    expected = torch.autograd.grad(loop(x, w), [x, w])
    with record_graphs() as records:
        found = torch.autograd.grad(torch.compile(loop, backend=relaxgrad, fullgraph=True)(x, w), [x, w])
    torch.testing.assert_close(found, expected)
    own = [r for r in records[0].reasons if r.op == "while_loop_stack_output"]
    assert [r.kind for r in own] == [ReasonKind.DATA_DEPENDENT], records[0].reasons
    assert all(own[0].op in r.detail for r in records[0].reasons if r not in own)


def test_a_while_loop_without_gradients_has_one_reason() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(5, 3), torch.randn(3, 3)
    expected = loop(x, w)
    with record_graphs() as records:
        torch.testing.assert_close(torch.compile(loop, backend=relaxgrad, fullgraph=True)(x, w), expected)
    assert [(r.op, r.kind) for record in records for r in record.reasons] == [("while_loop", ReasonKind.NO_CONVERTER)]
