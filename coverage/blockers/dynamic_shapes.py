# SPDX-License-Identifier: Apache-2.0
"""Blocker 2, dynamic shapes: what a model does when batch and sequence sizes change, and what symbolic sizes cost."""

from __future__ import annotations

import copy
import functools
import itertools
import statistics
import time
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from relaxgrad.bridge import pytree, torch_api
from relaxgrad.bridge.backend import compile as compile_on_tvm
from relaxgrad.bridge.backend import record_graphs
from relaxgrad.bridge.capture.source import is_internal
from relaxgrad.bridge.kinds import SourceLine

from ..harness import numbers
from ..harness.models import describe
from ..harness.problem import Problem, copy_tensors, map_tensors, seed_everything
from .finding import Blocker, Evidence, Finding, Level

ROUNDS = 8  # timed steps of each of the two ways, interleaved
Step = Callable[[Problem], Tensor]


def narrowed(problem: Problem, batch: int | None = None, length: int | None = None) -> Problem | None:
    """The problem with fewer rows, or shorter sequences; None where its inputs have no such size.

    The batch is dim 0 of every tensor input and must be the same in all that have more than one row. The length is
    dim 1 of the integer tensors of two dims (tokens, masks, labels), and the same in all of them.
    """
    tensors = _tensors(problem)
    if batch is not None:
        rows = {t.shape[0] for t in tensors if t.dim() and t.shape[0] > 1}
        if len(rows) != 1 or batch > (size := rows.pop()):
            return None
        return _mapped(problem, lambda t: t[:batch].clone() if t.dim() and t.shape[0] == size else t)
    assert length is not None
    lengths = {t.shape[1] for t in tensors if t.dim() == 2 and not t.is_floating_point()}
    if len(lengths) != 1 or length > (size := lengths.pop()):
        return None
    return _mapped(problem, lambda t: t[:, :length].clone() if t.dim() == 2 and t.shape[1] == size else t)


def _tensors(problem: Problem) -> list[Tensor]:
    return [t for t in pytree.tree_leaves((problem.args, problem.kwargs)) if isinstance(t, Tensor)]


def _mapped(problem: Problem, function: Callable[[Tensor], Tensor]) -> Problem:
    args, kwargs = map_tensors((problem.args, problem.kwargs), function)
    return replace(problem, args=args, kwargs=kwargs)


def schedule(problem: Problem) -> list[tuple[str, Problem]]:
    """The sizes that are tried, in order: the problem's own, smaller ones (batch, length, or both), its own again."""
    tensors = _tensors(problem)
    rows = max((t.shape[0] for t in tensors if t.dim()), default=1)
    length = next((t.shape[1] for t in tensors if t.dim() == 2 and not t.is_floating_point()), 1)
    tried: list[tuple[str, Problem | None]] = [("as given", problem)]
    for batch, shorter in ((rows - 1, length - 3), (rows // 2, length // 2)):
        tried.append(_narrower(problem, batch if batch > 1 else None, shorter if shorter > 1 else None))
    tried.append(("as given", problem))
    runnable = [(name, p) for name, p in tried if p is not None]
    return runnable if len(runnable) > 2 else runnable[:1]


def _narrower(problem: Problem, batch: int | None, length: int | None) -> tuple[str, Problem | None]:
    """The problem narrowed in both sizes, or in the one of them that it can be narrowed in alone."""
    for sizes in ({"batch": batch, "length": length}, {"batch": batch}, {"length": length}):
        given = {name: size for name, size in sizes.items() if size is not None}
        smaller: Problem | None = problem if given else None
        for name, size in given.items():
            smaller = None if smaller is None else narrowed(smaller, **{name: size})
        if smaller is not None and _runs(smaller):
            return ", ".join(f"{name} {size}" for name, size in given.items()), smaller
    return "", None


def _runs(problem: Problem) -> bool:
    """Whether eager has a loss at these sizes: with too few of something there is a mean of nothing."""
    try:
        with torch.no_grad():
            loss = problem.loss(problem.module(*copy_tensors(problem.args), **copy_tensors(problem.kwargs)))
    except Exception:  # the model's sizes are bound to each other in a way that only it knows
        return False
    return bool(torch.isfinite(loss.detach()).all())


def measure(build: Callable[[], Problem], seed: int) -> Finding:
    """The finding on one model. `build` makes the problem anew. Raises nothing for what compilation does."""
    problem = build()
    numbers_, evidence = explained(problem, seed)
    sizes = schedule(problem)
    numbers_["sizes"] = [name for name, _ in sizes]
    try:
        wrong, step = _vary(build, sizes, numbers_, seed)
        level, headline = _verdict(numbers_, wrong)
        if level is not Level.BLOCKS and numbers_["symbolic_graphs"]:
            numbers_["penalty"] = _penalty(build, step, seed)
            headline += f"; symbolic kernels take {numbers_['penalty']:.2f} times the static ones' step"
    except Exception as error:
        level, headline = Level.BLOCKS, f"a step of another size raised {describe(error)}"
    finally:
        torch.compiler.reset()
    return Finding(Blocker.DYNAMIC_SHAPES, level, headline, numbers_, evidence)


def explained(problem: Problem, seed: int) -> tuple[dict[str, Any], list[Evidence]]:
    """Graphs, guards and breaks of one forward call, and the lines that break it."""
    seed_everything(seed)
    torch.compiler.reset()
    with torch_api.quiet(), torch_api.dynamo_config_patch(allow_rnn=True):
        try:
            graphs, breaks, guards = torch_api.explain(
                problem.step_function(), copy_tensors(problem.args), copy_tensors(problem.kwargs)
            )
        except Exception as error:
            return {"not_traced": describe(error)}, []
        finally:
            torch.compiler.reset()
    evidence = []
    for reason, frames in breaks:
        own = [f for f in frames if not is_internal(f[0])] or frames
        evidence.append(Evidence(f"graph break: {reason}", str(SourceLine(*own[-1])) if own else ""))
    return {"graphs": graphs, "graph_breaks": len(breaks), "guards": guards}, evidence


def without_running(traced: dict[str, Any], evidence: list[Evidence]) -> Finding:
    """The finding of a dry run: graph breaks only."""
    if "not_traced" in traced:
        return Finding(Blocker.DYNAMIC_SHAPES, Level.UNKNOWN, f"tracing raised {traced['not_traced']}", traced)
    breaks = traced["graph_breaks"]
    headline = f"{breaks} graph break{'s' if breaks != 1 else ''}; other sizes were not tried"
    level = Level.WORKED_AROUND if breaks else Level.UNKNOWN
    return Finding(Blocker.DYNAMIC_SHAPES, level, headline, traced, evidence)


def _step(function: Any, problem: Problem, seed: int) -> Tensor:
    """One forward and backward from `seed`; the gradients are left on the module."""
    problem.module.zero_grad()
    seed_everything(seed)
    output = function(*copy_tensors(problem.args), **copy_tensors(problem.kwargs))
    loss = problem.loss_of(output)
    loss.backward()
    return loss


def _vary(
    build: Callable[[], Problem], sizes: list[tuple[str, Problem]], found: dict[str, Any], seed: int
) -> tuple[list[str], Callable[[], bool]]:
    """Steps through the sizes with one compiled function.

    Returns the sizes whose loss is not eager's, and one more step of the last size, which tells whether symbolic
    graphs ran in it and no static ones.
    """
    problem, eager = build(), build()
    eager.module.load_state_dict(problem.module.state_dict())
    start = copy.deepcopy(problem.module.state_dict())
    torch.compiler.reset()
    wrong, counts = [], []
    with record_graphs() as graphs, torch_api.quiet():
        function = compile_on_tvm(problem.step_function())
        for name, sized in sizes:
            for run in (problem, eager):
                run.args, run.kwargs = copy_tensors((sized.args, sized.kwargs))
                run.module.load_state_dict(start)
            loss, expected = _step(function, problem, seed), _step(eager.step_function(), eager, seed)
            if numbers.curve_difference([float(expected.detach())], [float(loss.detach())]) > numbers.LOSS_TOLERANCE:
                wrong.append(f"{name}: loss {float(loss.detach()):.6g}, eager {float(expected.detach()):.6g}")
            counts.append(len(graphs))
    found["compiled_graphs"] = counts  # after each size
    found["recompiles"] = sum(b > a for a, b in itertools.pairwise(counts))
    found["symbolic_graphs"] = sum(g.symbolic for g in graphs)
    found["data_dependent_ops"] = sorted(
        {r.op for g in graphs for r in g.reasons if r.kind.value == "data-dependent shape"}
    )

    def again() -> bool:
        before = [g.runs for g in graphs]
        _step(function, problem, seed)
        ran = [g.symbolic for g, runs in zip(graphs, before, strict=True) if g.runs > runs]
        return bool(ran) and all(ran)

    return wrong, again


def _penalty(build: Callable[[], Problem], varied: Callable[[], bool], seed: int) -> float:
    """Step time with symbolic sizes over step time with static ones, at the same sizes, in one interleaved run.

    `varied`: a step of the function that saw many sizes, which Dynamo may answer with a static graph of this very size:
    then another is compiled.
    """
    with torch_api.quiet():
        steps: dict[bool, Callable[[], Any]] = {False: _compiled_step(build(), seed, dynamic=False)}
        steps[True] = varied if varied() else _compiled_step(build(), seed, dynamic=True)
        for step in steps.values():
            step()
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(ROUNDS):
        for dynamic, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[dynamic].append(time.perf_counter() - start)
    return statistics.median(seconds[True]) / statistics.median(seconds[False])


def _compiled_step(problem: Problem, seed: int, *, dynamic: bool) -> Callable[[], Any]:
    """A step that is compiled: it ran once."""
    function = compile_on_tvm(_with_own_code(problem.step_function()), dynamic=dynamic)
    step = functools.partial(_step, function, problem, seed)
    step()
    return step


def _with_own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` behind a code object of its own: Dynamo keeps what it compiled by code object, static and symbolic
    alike, and would answer one with the other."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return types.FunctionType(call.__code__.replace(), call.__globals__, call.__name__, None, call.__closure__)


def _verdict(found: dict[str, Any], wrong: list[str]) -> tuple[Level, str]:
    if wrong:
        return Level.BLOCKS, f"wrong at another size: {'; '.join(wrong)}"
    if len(found["sizes"]) < 2:
        return Level.UNKNOWN, "its inputs have no batch or sequence size that can be changed alone"
    breaks = found.get("graph_breaks", 0)
    split = f", {breaks} graph break{'s' if breaks != 1 else ''}" if breaks else ""
    told = f"{len(found['sizes'])} sizes in a row took {found['recompiles']} recompilations{split}"
    # at the second size torch.compile learns what varies, and compiles once more
    if breaks or found["data_dependent_ops"] or found["recompiles"] > 1:
        return Level.WORKED_AROUND, told
    return Level.CLEAR, told
