# SPDX-License-Identifier: Apache-2.0
"""Sums of matrix products as one product."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.devices.cpu.gemm_sums import sums_of_products
from relaxgrad.bridge.kinds import Kind
from tests.accuracy import as_accurate

OPTIONS = {"on_compile_error": "raise", "fallback": "error"}


def graph_of(function: Any, *inputs: Tensor) -> torch.fx.Graph:
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function, tracing_mode="fake")(*inputs).graph


def term(rows: int, inner: int, columns: int) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, inner), torch.randn(inner, columns)


def added(*factors: Tensor) -> Tensor:
    total = factors[0] @ factors[1]
    for a, b in zip(factors[2::2], factors[3::2], strict=True):
        total = total + a @ b
    return total


def test_a_chain_of_any_length_is_one_sum() -> None:
    factors = [f for _ in range(5) for f in term(32, 2, 48)]
    sums = sums_of_products(graph_of(added, *factors))
    assert [(len(s.products), len(s.others), len(s.inner)) for s in sums.values()] == [(5, 0, 8)]


def test_twice_the_same_over_and_over_is_no_tree() -> None:
    def function(x: Tensor) -> Tensor:
        for _ in range(60):  # 2 ** 60 paths
            x = x + x
        return x

    assert not sums_of_products(graph_of(function, torch.randn(4, 4)))


def test_a_sum_of_few_or_large_products_stays() -> None:
    few = [f for _ in range(2) for f in term(32, 2, 48)]
    large = [f for _ in range(5) for f in term(32, 48, 32)]
    for factors in (few, large):
        assert not sums_of_products(graph_of(added, *factors))


def test_a_product_that_others_read_stays_apart() -> None:
    def function(*factors: Tensor) -> tuple[Tensor, Tensor]:
        shared = factors[0] @ factors[1]
        return shared + added(*factors[2:]), shared

    factors = [f for _ in range(5) for f in term(32, 2, 48)]
    (found,) = sums_of_products(graph_of(function, *factors)).values()
    assert (len(found.products), len(found.others)) == (4, 1)


def test_transposes_between_are_seen_through() -> None:
    def function(*factors: Tensor) -> Tensor:
        return (factors[0] @ factors[1]).t() + (factors[2] @ factors[3]).t().t().t() + (factors[4] @ factors[5])

    factors = [f for shape in ((40, 2, 24), (40, 2, 24), (24, 2, 40)) for f in term(*shape)]
    graph = graph_of(function, *factors)
    for node in graph.nodes:  # as the decomposition leaves it
        if node.target is torch.ops.aten.t.default:
            node.target, node.args = torch.ops.aten.permute.default, (node.args[0], [1, 0])
    (found,) = sums_of_products(graph).values()
    assert [p.turned for p in found.products] == [False, True, True]
    assert len(found.inner) == 3 + 4 + 1
    expected = function(*(f.double() for f in factors)).float()
    compiled = torch.compile(function, backend=relaxgrad, options=OPTIONS)
    torch.testing.assert_close(compiled(*factors), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("extra", [False, True])
def test_values(dtype: torch.dtype, extra: bool) -> None:
    def function(start: Tensor, *factors: Tensor) -> Tensor:
        total = added(*factors)
        return (total + start if extra else total) * 2

    factors = [f.to(dtype) for k in (1, 2, 3, 2) for f in term(24, k, 40)]
    # left-hand sides that lie transposed, as those of a weight's gradient do, and one that does not
    factors = [f.t().contiguous().t() if i % 2 == 0 and i else f for i, f in enumerate(factors)]
    start = torch.randn(24, 40, dtype=dtype)
    expected = function(start.double(), *(f.double() for f in factors)).to(dtype)
    compiled = torch.compile(function, backend=relaxgrad, options=OPTIONS)
    torch.testing.assert_close(compiled(start, *factors), expected)


class Steps(nn.Module):
    """Twelve steps of a recurrence. forward(x): (12, 4, 16) -> (4, 48)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 48)
        self.outer = nn.Linear(48, 48, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[1], 48)
        for step in x:
            state = torch.tanh(self.inner(step) + self.outer(state))
        return state


def test_the_gradient_of_a_weight_of_many_steps_is_one_product() -> None:
    torch.manual_seed(0)
    model, wide = Steps(), Steps().double()
    wide.load_state_dict(model.state_dict())
    x = torch.randn(12, 4, 16)
    with record_graphs() as graphs:
        torch.compile(model, backend=relaxgrad, options=OPTIONS)(x).square().sum().backward()
    wide(x.double()).square().sum().backward()
    eager = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    as_accurate([p.grad for p in wide.parameters()], list(eager), [p.grad for p in model.parameters()])
    backward = graphs[-1]
    additions = [n for n in backward.nodes if n.op == "aten.add.Tensor" and n.kind is Kind.LIBRARY]
    assert len(additions) >= 11


def test_sums_of_symbolic_sizes_stay() -> None:
    def function(*factors: Tensor) -> Tensor:
        return added(*factors)

    factors = [f for _ in range(4) for f in term(24, 2, 40)]
    compiled = torch.compile(function, backend=relaxgrad, options=OPTIONS, dynamic=True)
    torch.testing.assert_close(compiled(*factors), function(*factors))


def test_terms_of_a_symbolic_inner_size_are_one_product() -> None:
    """The gradient of a weight that every step of a loop reads, at any batch size."""

    def steps(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(6):
            x = torch.tanh(x @ w)
        return x

    compiled = torch.compile(steps, backend=relaxgrad, options=OPTIONS)
    with record_graphs() as records:
        for batch in (4, 7):
            w = (torch.randn(64, 64) / 8).requires_grad_()
            x = torch.randn(batch, 64)
            torch_api.mark_dynamic(x, 0)
            (found,) = torch.autograd.grad(compiled(x, w).sum(), w)
            (expected,) = torch.autograd.grad(steps(x.double(), w.double()).sum(), w)
            torch.testing.assert_close(found, expected)
            assert expected.abs().max() > 0
    backward = records[1]
    assert backward.symbolic
    additions = [node for node in backward.nodes if node.op == "aten.add.Tensor"]
    assert [node.kind for node in additions] == [Kind.LIBRARY] * 5  # the one product does them
