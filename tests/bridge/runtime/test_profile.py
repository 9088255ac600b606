# SPDX-License-Identifier: Apache-2.0
"""The kernel profiler: every kernel and call by name and kind, and nothing after its context."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import nn

from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.runtime.flops import product_flops
from relaxgrad.bridge.runtime.profile import profile_kernels


def test_kernels_are_timed_by_kind() -> None:
    torch.compiler.reset()
    network = nn.Sequential(nn.Conv1d(4, 4, 3), nn.Flatten(), nn.Linear(24, 8), nn.Tanh())
    x = torch.randn(2, 4, 8)
    with record_graphs() as graphs:
        compiled = torch.compile(
            lambda x: torch.special.i0(network(x)).sum() + torch.fft.rfft(x).abs().sum(), backend=relaxgrad
        )
        compiled(x).backward()
    with profile_kernels() as times:
        for _ in range(3):
            compiled(x).backward()
    assert {t.kind for t in times} == {Kind.NATIVE, Kind.LIBRARY, Kind.FALLBACK}
    assert all(t.calls % 3 == 0 and t.calls and t.seconds > 0 for t in times)
    assert {t.name for t in times} >= {"aten.convolution.default", "aten.convolution_backward.default"}
    assert {t.graph for t in times} == {g.index for g in graphs}
    counted = sum(t.calls for t in times)
    compiled(x).backward()
    assert sum(t.calls for t in times) == counted


def test_bytes_and_operations_come_from_the_shapes() -> None:
    torch.compiler.reset()
    convolution, linear = nn.Conv2d(3, 5, 3, padding=1), nn.Linear(7, 11)
    x, batch, q = torch.randn(2, 3, 8, 8), torch.randn(4, 7), torch.randn(3, 6, 5)
    compiled = torch.compile(
        lambda x, b, q: (convolution(x), linear(b), q @ q.transpose(1, 2), (b + 1).sin()), backend=relaxgrad
    )
    with torch.no_grad():
        compiled(x, batch, q)
        with profile_kernels() as times:
            compiled(x, batch, q)
            compiled(x, batch, q)
    found = {t.name: t for t in times}
    convolved = found["aten.convolution.default"]
    assert convolved.flops == 2 * 2 * (2 * 5 * 8 * 8) * (3 * 3 * 3)  # twice a run; two operations, outputs, inner
    assert convolved.bytes == 2 * 4 * (x.numel() + 5 * 3 * 9 + 5 + 2 * 5 * 8 * 8)
    products = {n: t for n, t in found.items() if "mm" in n}
    assert sorted(t.flops for t in products.values()) == sorted([2 * 2 * 4 * 11 * 7, 2 * 2 * 3 * 6 * 6 * 5])
    native = [t for t in times if t.kind is Kind.NATIVE and "sin" in t.name]
    assert [(t.flops, t.bytes) for t in native] == [(0, 2 * 2 * 4 * batch.numel())]


def test_nothing_of_the_profiler_stays() -> None:
    """A hook left in the machine, even one that does nothing, costs a call of Python before and after each kernel."""
    torch.compiler.reset()
    compiled = torch.compile(lambda x: (x @ x).sin().sum(), backend=relaxgrad)
    x = torch.randn(8, 8)
    compiled(x)

    def python_calls() -> int:
        calls = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            compiled(x)
        finally:
            sys.setprofile(None)
        return calls

    before = python_calls()
    with profile_kernels():
        assert python_calls() > before
    assert python_calls() == before


def test_a_call_of_a_function_is_named_without_an_address() -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda x: nn.functional.dropout(x, 0.5).sin(), backend=relaxgrad)
    x = torch.randn(64, requires_grad=True)
    compiled(x)
    with profile_kernels() as times:
        compiled(x)
    drawn = [t for t in times if "bernoulli" in t.name]
    assert len(drawn) == 1
    assert not any(" at 0x" in t.name for t in times)


@pytest.mark.parametrize(
    ("shapes", "flops"),
    [
        ([(2, 3), (3, 5), (2, 5)], 2 * 2 * 3 * 5),
        ([(2, 3), (5, 3), (5,), (2, 5)], 2 * 2 * 3 * 5),  # transposed, with a bias
        ([(7, 2, 3), (7, 3, 5), (7, 2, 5)], 7 * 2 * 2 * 3 * 5),
        ([(2, 9), (3, 5), (2, 5)], 0),  # the left operand is part of a larger tensor
        ([(4, 4), (4, 4)], 0),
        ([(0, 3), (3, 5), (0, 5)], 0),
    ],
)
def test_operations_of_a_product(shapes: list[tuple[int, ...]], flops: int) -> None:
    assert product_flops(shapes) == flops


def test_nodes_say_how_they_run_and_where_they_are_from() -> None:
    torch.compiler.reset()
    with record_graphs() as graphs:
        torch.compile(lambda x: x.sin().sum(), backend=relaxgrad)(torch.ones(3, requires_grad=True)).backward()
    nodes = {n.op: n for g in graphs for n in g.nodes}
    assert nodes["aten.sin.default"].kind is Kind.NATIVE
    assert nodes["aten.cos.default"].kind is Kind.NATIVE
    for op in ("aten.sin.default", "aten.cos.default"):  # a backward node has the line of what it differentiates
        source = nodes[op].source
        assert source is not None
        assert source.file == __file__
        assert "x.sin().sum()" in source.code
