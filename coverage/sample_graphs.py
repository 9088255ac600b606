# SPDX-License-Identifier: Apache-2.0
"""The graphs of a model with the values of one run of them, for samples; and what a replay's outputs are worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from relaxgrad.bridge.capture import capture_joint, capture_pair
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.schemas import CapturedGraph

from .harness import numbers
from .harness.problem import Problem, copy_tensors
from .upstream_importer import keep_run

if TYPE_CHECKING:
    from relaxgrad.coverage.samples import Loaded
    from relaxgrad.coverage.samples.replay import Result

LONGEST = 60  # characters of a part's name


@dataclass(frozen=True)
class Found:
    """A graph of a model."""

    graph: CapturedGraph
    inputs: list[Any] | None  # values of one run; None where the sizes are symbols
    part: str = ""  # of a fused group: which graph, number, kernel


def joint_graph(problem: Problem, decompose: str = "core_aten", dynamic: bool = False) -> Found:
    """The joint graph of a training step. Raises UserError as `capture_joint`."""
    from relaxgrad.coverage.samples.values import joint_inputs

    arguments = (problem.module, problem.args, problem.kwargs)
    loss = problem.loss if problem.compile_loss else None
    graph = capture_joint(*arguments, loss=loss, decompose=decompose, dynamic=dynamic)
    return Found(graph, None if dynamic else joint_inputs(graph, *arguments))


def step_graphs(problem: Problem, decompose: str = "core_aten", dynamic: bool = False) -> list[Found]:
    """The forward and backward graphs of a training step. Raises UserError as `capture_pair`."""
    runs: list[tuple[CapturedGraph, list[Any]]] = []
    pair = capture_pair(
        problem.module,
        problem.args,
        problem.kwargs,
        loss=problem.loss if problem.compile_loss else None,
        decompose=decompose,
        dynamic=dynamic,
        on_run=keep_run(runs),
    )
    values = {id(graph): inputs for graph, inputs in runs}
    return [Found(graph, None if dynamic else values.get(id(graph))) for graph in pair]


def fused_graphs(graphs: list[Found]) -> list[Found]:
    """The groups of nodes of these graphs that fuse into one kernel each, as graphs of their own."""
    from relaxgrad.coverage.samples.groups import fused_groups, group_graph, values_of
    from relaxgrad.coverage.samples.save import SEED

    found: list[Found] = []
    for one in graphs:
        if one.inputs is None:
            continue
        values = values_of(one.graph.module, one.inputs, SEED)
        for number, (kernel, members) in enumerate(fused_groups(one.graph), 1):
            part, outside = group_graph(one.graph, members)
            name = f"{one.graph.kind}-{number}-{kernel.removeprefix('fused_')}"[:LONGEST]
            found.append(Found(part, [values[node] for node in outside], name))
    if not found:
        raise UserError("no kernel of this model computes more than one op")
    return found


def verdicts(loaded: Loaded, results: list[Result], backend: str) -> list[str]:
    """What to say of each output of a replay: bit-equal, or right by the float64 rule; empty where it is wrong.

    The saved outputs are digests and no values: eager, by which others are validated, is equal or wrong.
    """
    from relaxgrad.coverage.samples.load import run

    if backend == "eager" or all(result.equal and result.layout for result in results):
        return ["bit-equal" if result.equal and result.layout else "" for result in results]

    def values(widen: bool) -> list[Any]:
        returned, written = run(loaded.module, copy_tensors(loaded.inputs, widen), loaded.sample.seed)
        return [*returned, *(written[name] for name in loaded.sample.written)]

    eager = values(widen=False)
    try:
        with numbers.float64_run():
            reference = values(widen=True)
    except Exception:  # an op without float64
        reference = eager
    return [_verdict(*three) for three in zip(results, eager, reference, strict=True)]


def _verdict(result: Result, eager: Any, reference: Any) -> str:
    if not result.layout:
        return ""
    if result.equal:
        return "bit-equal"
    if not isinstance(result.value, torch.Tensor) or not isinstance(eager, torch.Tensor):
        return ""
    return "right by the float64 rule" if numbers.compare("output", reference, eager, result.value).right else ""
