# SPDX-License-Identifier: Apache-2.0
"""Compiling costs the same for each node, whether a graph has a hundred of them or ten thousand."""

from __future__ import annotations

import gc
import time

import pytest
import torch
import torch.fx
from torch import Tensor

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.compile.cache.key import key_of
from relaxgrad.bridge.compile.pipeline import compile_module
from relaxgrad.bridge.importer.translate import translate
from relaxgrad.bridge.schemas import CapturedGraph, GraphKind
from relaxgrad.bridge.targets import resolve_target

aten = torch.ops.aten
NODES_OF_A_BLOCK = 7
STAGES = ("key", "translate", "compile")


def residual_stack(blocks: int) -> CapturedGraph:
    """A chain of blocks that branch and meet again: x + (h * sigmoid(h) - its row sums), h = x @ w.T + b."""
    mode = torch_api.symbolic_fake_mode()
    graph = torch.fx.Graph()

    def placeholder(name: str, *shape: int) -> torch.fx.Node:
        node = graph.placeholder(name)
        node.meta["val"] = torch_api.fake_tensor(mode, torch.empty(shape), False)
        return node

    def call(op: torch_api.OpOverload, *args: object) -> torch.fx.Node:
        node = graph.call_function(op, args)
        with mode:
            node.meta["val"] = op(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))
        return node

    x = placeholder("x", 4, 16)
    for w, b in [(placeholder(f"w{i}", 16, 16), placeholder(f"b{i}", 16)) for i in range(blocks)]:
        h = call(aten.addmm.default, b, x, call(aten.permute.default, w, [1, 0]))
        gated = call(aten.mul.Tensor, h, call(aten.sigmoid.default, h))
        x = call(aten.add.Tensor, x, call(aten.sub.Tensor, gated, call(aten.sum.dim_IntList, gated, [1], True)))
    graph.output((x,))
    assert isinstance(x.meta["val"], Tensor)
    return CapturedGraph(torch.fx.GraphModule(torch.nn.Module(), graph), GraphKind.INFERENCE, (), ())


def measure(nodes: int) -> dict[str, float]:
    """Milliseconds of CPU time a node, by stage."""
    captured = residual_stack(nodes // NODES_OF_A_BLOCK)
    count = sum(n.op == "call_function" for n in captured.module.graph.nodes)
    gc.collect()
    times = [time.process_time()]
    key_of(captured, ())
    times.append(time.process_time())
    translation = translate(captured)
    times.append(time.process_time())
    compile_module(translation.module, captured.device, resolve_target("llvm"))
    times.append(time.process_time())
    return {stage: 1000 * (b - a) / count for stage, a, b in zip(STAGES, times, times[1:], strict=False)}


@pytest.mark.slow
def test_the_cost_of_a_node_does_not_grow_with_the_graph() -> None:
    measure(100)  # imports, and what is made once
    found = {nodes: measure(nodes) for nodes in (100, 1000, 10_000)}
    report = "\n".join(
        f"{n} nodes: {', '.join(f'{s} {t:.3f}' for s, t in f.items())} ms a node" for n, f in found.items()
    )
    print(report)
    for stage in ("key", "translate", "compile"):
        # A quadratic stage would be ten times as dear a node; some of TVM's passes are n log n.
        assert found[10_000][stage] < 2.5 * found[1000][stage], report
    assert sum(found[10_000].values()) < 1.5 * sum(found[1000].values()), report
