"""The kernel profiler: every kernel and call by name and kind, and nothing after its context."""

from __future__ import annotations

import torch
from torch import nn

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.runtime.profile import profile_kernels


def test_kernels_are_timed_by_kind() -> None:
    torch_api.dynamo_reset()
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


def test_nodes_say_how_they_run_and_where_they_are_from() -> None:
    torch_api.dynamo_reset()
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
