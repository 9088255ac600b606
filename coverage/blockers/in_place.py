# SPDX-License-Identifier: Apache-2.0
"""Blocker 4, in-place operations and optimizer state: what a training step writes to, and whether it survives."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx
from torch import Tensor

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.backend import compile as compile_on_tvm
from relaxgrad.bridge.backend import record_graphs
from relaxgrad.bridge.capture import source_of
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.schemas import CapturedGraph, GraphRecord, OutputRole

from ..harness import numbers
from ..harness.models import describe
from ..harness.problem import Problem, copy_tensors, seed_everything
from .finding import Blocker, Evidence, Finding, Level

STEPS = 3  # optimizer steps of the two comparisons


def measure(build: Callable[[], Problem], captured: Sequence[CapturedGraph], graphs: Sequence[GraphRecord]) -> Finding:
    """The finding on one model.

    `captured`: its training graphs with their signatures; `graphs`: the records of those that were compiled and run.
    Raises nothing for what compilation does.
    """
    found, evidence = written(captured)
    found["layout_copies_a_run"] = sum(g.copies / g.runs for g in graphs if g.runs)
    try:
        _optimizer(build, found)
        _saved_state(build, found)
    except Exception as error:
        return Finding(Blocker.IN_PLACE, Level.BLOCKS, f"an optimizer step raised {describe(error)}", found, evidence)
    finally:
        torch.compiler.reset()
    return Finding(Blocker.IN_PLACE, *_verdict(found), found, evidence)


def written(captured: Sequence[CapturedGraph]) -> tuple[dict[str, Any], list[Evidence]]:
    """What the graphs write to, in figures and with the lines that do it."""
    targets: dict[str, int] = {}  # name -> bytes
    evidence: dict[str, Evidence] = {}  # by line
    for graph in captured:
        for target, shape, dtype, node in _writes(graph):
            targets[target] = _bytes(shape, dtype)
            source = source_of(node) if node is not None else None
            if source is not None:
                told = f"{target} is written in place: the graph computes its new value and copies it"
                evidence.setdefault(str(source), Evidence(told, str(source)))
    found = {"mutated": sorted(targets), "mutated_bytes": sum(targets.values())}
    return found, list(evidence.values())


def _writes(graph: CapturedGraph) -> Iterator[tuple[str, tuple[str, ...] | None, str, torch.fx.Node | None]]:
    """(target, shape, dtype, node of the new value) of each input that a graph writes to.

    AOTAutograd returns the new value of what autograd watches, and copies it inside the graph for what it does not, as
    for the statistics of a batch norm.
    """
    nodes = {n.name: n for n in graph.module.graph.nodes}
    inputs = {i.name: i for i in graph.inputs}
    for output in graph.outputs:
        if output.role is OutputRole.MUTATION:
            yield output.target, output.shape, output.dtype, nodes.get(output.name or "")
    for node in nodes.values():
        if node.target is torch.ops.aten.copy_.default and (given := inputs.get(node.args[0].name)):
            yield given.target, given.shape, given.dtype, node.args[1]


def without_running(captured: Sequence[CapturedGraph]) -> Finding:
    """The finding of a dry run: what is written to; the optimizer was not tried."""
    found, evidence = written(captured)
    count = len(found["mutated"])
    headline = f"{count} tensor{'s' if count != 1 else ''} written in place; the optimizer step was not tried"
    return Finding(Blocker.IN_PLACE, Level.UNKNOWN, headline, found, evidence)


def _bytes(shape: tuple[str, ...] | None, dtype: str) -> int:
    if shape is None or not all(s.isdecimal() for s in shape):
        return 0
    size = getattr(torch, dtype.removeprefix("torch.")).itemsize
    count = 1
    for s in shape:
        count *= int(s)
    return count * size


def _of_each_shape(problem: Problem) -> list[torch.nn.Parameter]:
    """The first parameter of each shape and dtype: the optimizer's graph repeats the same ops for every other."""
    return list({(p.shape, p.dtype): p for p in reversed(problem.named_parameters().values())}.values())


def _optimizer(build: Callable[[], Problem], found: dict[str, Any]) -> None:
    """AdamW steps with `optimizer.step` compiled on TVM, by the float64 rule, for a parameter of each shape.

    The float32 run that the rule wants is the same compiled step in ATen: under torch.compile the bias corrections are
    float32 tensors, `1 - 0.999 ** step` among them, where eager has Python's numbers.
    """
    start = [p.detach().clone() for p in _of_each_shape(build())]  # a factory need not be repeatable
    reference, _ = _steps([p.double() if p.is_floating_point() else p for p in start], lambda step: step)
    eager, _ = _steps(start, lambda step: torch.compile(step, backend="aot_eager"))
    result, graphs = _steps(start, compile_on_tvm)
    kinds = {kind.value: sum(g.calls.get(kind, 0) for g in graphs) for kind in Kind}
    names = [f"parameter {i}" for i in range(len(start))]
    pairs = [dict(zip(names, values, strict=True)) for values in (reference, eager, result)]
    failed = [str(c) for c in numbers.compare_all(*pairs) if not c.right]
    unmoved = [n for n, a, b in zip(names, start, result, strict=True) if torch.equal(a, b)]
    found["optimizer"] = {
        "compiled_graphs": len(graphs),
        "calls_by_kind": kinds,
        "compared": len(names),
        "failed": failed,
        "largest_difference": max(float((a - b).abs().max()) for a, b in zip(result, eager, strict=True)),
        "right": bool(graphs) and not failed and not unmoved,
    }


def _steps(start: Sequence[Tensor], compiled: Callable[[Any], Any]) -> tuple[list[Tensor], list[GraphRecord]]:
    """(the parameters after STEPS steps from `start` with drawn gradients, graphs that the bridge compiled)."""
    torch.compiler.reset()
    parameters = [torch.nn.Parameter(p.clone()) for p in start]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    with record_graphs() as graphs, torch_api.quiet():
        step = compiled(optimizer.step)
        for number in range(STEPS):
            generator = torch.Generator().manual_seed(number)
            for p in parameters:
                drawn = torch.randn(p.shape, generator=generator, dtype=torch.float32)
                p.grad = drawn.to(p.dtype)
            step()
    return [p.detach().clone() for p in parameters], list(graphs)


def _saved_state(build: Callable[[], Problem], found: dict[str, Any]) -> None:
    """Trains, saves half way, loads into a new model and trains that on: as the first one that was not stopped."""
    torch.compiler.reset()
    problem, file = build(), io.BytesIO()
    straight = _train(problem, None, 2 * STEPS, save=file)
    file.seek(0)
    saved = torch.load(file)
    again = build()
    again.args, again.kwargs = problem.args, problem.kwargs
    again.module.load_state_dict(saved["model"])
    resumed = _train(again, saved["optimizer"], STEPS, first=STEPS)
    expected = straight[STEPS:]
    found["resumed"] = {"expected": expected, "seen": resumed, "right": expected == resumed}


def _train(problem: Problem, state: Any, steps: int, first: int = 0, save: io.BytesIO | None = None) -> list[float]:
    """Losses of compiled steps with AdamW. Step i draws from seed i; `save` gets the state after half of them."""
    optimizer = torch.optim.AdamW(problem.named_parameters().values(), lr=1e-3)
    if state is not None:
        optimizer.load_state_dict(state)
    losses = []
    with torch_api.quiet():
        function = compile_on_tvm(problem.step_function())
        for number in range(first, first + steps):
            if save is not None and number == first + steps // 2:
                torch.save({"model": problem.module.state_dict(), "optimizer": optimizer.state_dict()}, save)
            seed_everything(number)
            optimizer.zero_grad()
            output = function(*copy_tensors(problem.args), **copy_tensors(problem.kwargs))
            loss = problem.loss_of(output)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    return losses


def _verdict(found: dict[str, Any]) -> tuple[Level, str]:
    optimizer, resumed = found["optimizer"], found["resumed"]
    if not optimizer["right"]:
        why = (
            "was not compiled"
            if not optimizer["compiled_graphs"]
            else "gives other parameters than the same step in ATen"
        )
        return Level.BLOCKS, f"the compiled AdamW step {why}"
    if not resumed["right"]:
        return Level.BLOCKS, "training on from a saved state gives other losses than training straight through"
    written = len(found["mutated"])
    told = f"{written} tensor{'s' if written != 1 else ''} written in place ({found['mutated_bytes']:,} bytes a step)"
    told += ", the AdamW step compiled, state saved and loaded"
    fallen = optimizer["calls_by_kind"]["fallback"]
    if fallen:
        return Level.WORKED_AROUND, f"{told}; {fallen} calls of the optimizer run in ATen"
    return Level.CLEAR, told
