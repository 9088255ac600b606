# SPDX-License-Identifier: Apache-2.0
"""Which nodes belong together: a forward operation, what differentiates it, and what became of both.

Note [Correspondence]
Autograd numbers the operations of the forward pass that it will differentiate, and AOTAutograd's graphs keep the number
on what an operation became and on what differentiates it. So a backward node belongs to the forward node of its number.
What autograd does not differentiate (masks, index computations) has the number of the operation before it: the first
node of a number is the operation itself. A backward node without a number (a gradient that is added up from two)
belongs where its first input does. The numbers go on from one capture to the next: what counts is their distance.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch
import torch.fx

from relaxgrad.bridge.capture import source_of
from relaxgrad.bridge.kinds import SourceLine
from relaxgrad.bridge.schemas import CapturedGraph, OutputRole

SLACK = 4  # operations that one capture of a model may have at its start and another lacks


def calls_of(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The nodes that compute."""
    return [n for n in graph.nodes if n.op == "call_function" and n.target is not operator.getitem]


def number_of(node: torch.fx.Node) -> int | None:
    """The number that autograd gave to the operation."""
    number = node.meta.get("seq_nr")
    return number if isinstance(number, int) else None


def first_number(nodes: Iterable[torch.fx.Node]) -> int:
    """The lowest number of a capture; 0 where there is none."""
    return min((number for node in nodes if (number := number_of(node)) is not None), default=0)


def forward_nodes(graph: CapturedGraph) -> set[torch.fx.Node]:
    """The nodes of a joint graph that its forward outputs are made of; the others are the backward pass."""
    (output,) = (n for n in graph.module.graph.nodes if n.op == "output")
    pending = [
        value
        for value, meaning in zip(output.args[0], graph.outputs, strict=True)
        if isinstance(value, torch.fx.Node) and meaning.role is not OutputRole.GRADIENT
    ]
    pending += [n for n in graph.module.graph.nodes if n.target is torch.ops.aten.copy_.default]
    found: set[torch.fx.Node] = set()
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found


def by_number(nodes: Iterable[torch.fx.Node]) -> dict[int, torch.fx.Node]:
    """Number, counted from the first -> the forward call of that number, of the calls of a forward pass in order."""
    nodes = list(nodes)
    first, found = first_number(nodes), dict[int, torch.fx.Node]()
    for node in nodes:
        if (number := number_of(node)) is not None:
            found.setdefault(number - first, node)
    return found


def correspondence(graph: CapturedGraph) -> dict[torch.fx.Node, torch.fx.Node]:
    """For each call of the backward pass of a joint graph, the call of the forward pass that it differentiates."""
    forward = forward_nodes(graph)
    there = [n for n in calls_of(graph.module.graph) if n in forward]
    numbers, first = by_number(there), first_number(there)
    found: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.module.graph.nodes:
        if node.op != "call_function" or node in forward:
            continue
        number = number_of(node)
        matched = numbers.get(number - first) if number is not None else None
        if matched is None:
            matched = next((found[n] for n in node.all_input_nodes if n in found), None)
        if matched is None:
            matched = next(
                (n for n in reversed(node.all_input_nodes) if n in forward and n.op == "call_function"), None
            )
        if matched is not None:
            found[node] = matched
    return found


class Keys:
    """The keys of nodes of any capture of a model, named after the forward nodes of its joint graph.

    Nodes share a key when they have the same number and come from the same line: so what autograd does not
    differentiate is told from the operation before it.
    """

    def __init__(self, joint: CapturedGraph):
        forward = forward_nodes(joint)
        there = [n for n in calls_of(joint.module.graph) if n in forward]
        self._matched = correspondence(joint)
        self._numbers = by_number(there)
        self._lines: dict[tuple[int, SourceLine | None], torch.fx.Node] = {}
        self._first = first_number(there)
        for node in there:
            if (number := number_of(node)) is not None:
                self._lines.setdefault((number - self._first, source_of(node)), node)

    def joint(self, node: torch.fx.Node) -> str:
        """The key of a node of the joint graph that the keys are named after."""
        node = self._matched.get(node, node)
        number = number_of(node)
        return f"t-{node.name}" if number is None else f"t-{(self._meets(node, number - self._first) or node).name}"

    def others(self, nodes: Iterable[torch.fx.Node]) -> dict[torch.fx.Node, str]:
        """The keys of the nodes of another capture, but for those that belong nowhere.

        A capture may lack an operation at its start that the other has. So of the ways to lay the numbers side by side
        the one counts in which most nodes meet one of the same op.
        """
        numbered = [(node, number) for node in nodes if (number := number_of(node)) is not None]
        start = min((number for _, number in numbered), default=0)

        def met(first: int) -> tuple[int, int]:
            pairs = ((node, self._meets(node, number - first)) for node, number in numbered)
            return sum(b is not None and a.target is b.target for a, b in pairs), -abs(first - start)

        first = max(range(start - SLACK, start + SLACK + 1), key=met)
        return {n: f"t-{matched.name}" for n, q in numbered if (matched := self._meets(n, q - first)) is not None}

    def _meets(self, node: torch.fx.Node, number: int) -> torch.fx.Node | None:
        """The forward node of a number, counted from the first, and of the node's line if there is one."""
        return self._lines.get((number, source_of(node))) or self._numbers.get(number)
