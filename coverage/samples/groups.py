# SPDX-License-Identifier: Apache-2.0
"""The groups of nodes that fuse into one kernel, as graphs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from relaxgrad.bridge.compile.inspect.trace import fusion_of
from relaxgrad.bridge.importer.translate import translate
from relaxgrad.bridge.schemas import CapturedGraph, GraphInput, GraphKind, GraphOutput, InputRole, OutputRole


def fused_groups(captured: CapturedGraph) -> list[tuple[str, list[torch.fx.Node]]]:
    """(name of the kernel, its nodes in order) of every kernel that computes more than one node of the graph.

    A kernel that runs several times, as in equal layers, is saved once.
    """
    nodes = {node.name: node for node in captured.module.graph.nodes}
    order = {node: number for number, node in enumerate(captured.module.graph.nodes)}
    found = []
    for kernel, names in fusion_of(translate(captured), captured.device):
        members = _first_of(sorted((nodes[name] for name in names if name in nodes), key=order.__getitem__))
        if len(members) > 1:
            found.append((kernel, members))
    return found


def _first_of(members: list[torch.fx.Node]) -> list[torch.fx.Node]:
    """Those of the nodes that the first of them is connected with."""
    inside, reached, pending = set(members), set[torch.fx.Node](), members[:1]
    while pending:
        node = pending.pop()
        if node in inside and node not in reached:
            reached.add(node)
            pending += [*node.all_input_nodes, *node.users]
    return [node for node in members if node in reached]


def group_graph(captured: CapturedGraph, members: Sequence[torch.fx.Node]) -> tuple[CapturedGraph, list[torch.fx.Node]]:
    """A graph of these nodes alone, and the nodes of the whole graph that are its inputs."""
    graph = torch.fx.Graph()
    inside, copies = set(members), dict[torch.fx.Node, torch.fx.Node]()
    outside = list(dict.fromkeys(n for m in members for n in m.all_input_nodes if n not in inside))
    for node in outside:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in members:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    results = [m for m in members if any(user not in inside for user in m.users)]
    graph.output(tuple(copies[m] for m in results))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    inputs = tuple(_meaning(GraphInput, node, InputRole.UNKNOWN) for node in outside)
    outputs = tuple(_meaning(GraphOutput, node, OutputRole.OUTPUT) for node in results)
    kind = GraphKind.INFERENCE
    return CapturedGraph(module, kind, inputs, outputs, captured.decompose), outside


def _meaning(cls: Any, node: torch.fx.Node, role: Any) -> Any:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return cls(node.name, role, node.name)
    layout = (tuple(map(str, value.shape)), tuple(map(str, value.stride())), str(value.dtype))
    return cls(node.name, role, node.name, *layout)


def values_of(module: torch.fx.GraphModule, inputs: Sequence[Any], seed: int) -> dict[torch.fx.Node, Any]:
    """What every node of a graph is in one run of it."""
    values: dict[torch.fx.Node, Any] = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            values[n] = super().run_node(n)
            return values[n]

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        Recorder(module, garbage_collect_values=False).run(*inputs)
    return values
