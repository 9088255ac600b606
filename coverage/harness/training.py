# SPDX-License-Identifier: Apache-2.0
"""Trains one problem in eager and compiled, side by side, and says whether the compiled one trained.

Note [The protocol of a training comparison]
Both candidates start from the same parameters and inputs and from the same random state (`seed_everything(seed)`),
take the same AdamW steps on the same batch, and their steps alternate; each has a random state of its own, restored
before its step, so dropout masks are the same as long as the compiled step draws what eager draws. A step is
zero_grad, forward, loss, backward, optimizer. The first step also gives the gradients, which are validated against a
float64 run (numbers.py), and the compile time. The steps after the warm-up give the times. Where something is not right
and eager is no steadier (conditioning.py), the seed tells nothing, and the model is validated at the next ones.
"""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.errors import UnsupportedOps, UserError
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.schemas import GraphKind, GraphRecord

from . import numbers
from .conditioning import (
    EagerSpread,
    conditioning,
    curve_limit,
    float64_difference,
    is_ill_conditioned,
    zeros_of_aot,
)
from .models import describe, load_problem
from .problem import Problem, seed_everything
from .timing import interleave
from .train_record import NO_REFERENCE, Conditioning, Status, TrainRecord, Validation
from .trainee import Trainee, problem_like

FURTHER_SEEDS = 2  # at which a model is validated that is ill-conditioned at the one that was asked for
WARM_UP = 3  # steps left out of the times: the first compiles, the next fill allocators and caches

Emit = Callable[[dict[str, Any]], None]


class Compiler(Protocol):
    """A way to compile a training step and to see the graphs that were compiled."""

    @property
    def name(self) -> str: ...

    def compile(self, module: nn.Module) -> Callable[..., Any]: ...

    def record(self) -> contextlib.AbstractContextManager[list[GraphRecord]]: ...


@dataclass(frozen=True)
class Relaxgrad:
    """`torch.compile(module, backend="relaxgrad")`."""

    target: str = "llvm"
    fallback: str = "aten"  # or "error"
    name: str = "relaxgrad"

    def compile(self, module: nn.Module) -> Callable[..., Any]:
        from relaxgrad.bridge import backend

        compiled: Callable[..., Any] = backend.compile(
            module, options={"target": self.target, "fallback": self.fallback}
        )
        return compiled

    @contextlib.contextmanager
    def record(self) -> Iterator[list[GraphRecord]]:
        from relaxgrad.bridge import backend

        with backend.record_graphs() as records:
            yield records


def train_model(
    model: str,
    steps: int = 20,
    seed: int = 0,
    compiler: Compiler = Relaxgrad(),
    emit: Emit | None = None,
    inspect: Callable[[Callable[[], Any]], None] | None = None,
    graphs: list[GraphRecord] | None = None,
) -> TrainRecord:
    """Trains `model` (as `load_problem` takes it) for `steps` AdamW steps in eager and compiled, in this process.

    Raises UserError where the model itself is wrong, eager included; what goes wrong in the compiled run is in the
    record. Events to `emit`: {"event": "stage", "stage": str} and {"event": "step", "step": int, "losses": {...}}.
    `inspect` gets the compiled step, to run it more often, after training and before anything is validated. `graphs`, a
    list, is filled with the graphs of the run that the record is of: where the model is ill-conditioned at `seed`, of
    the first of FURTHER_SEEDS more at which it is not.
    """
    if steps < 1:
        raise UserError(f"steps must be at least 1, not {steps}")
    say = emit or (lambda event: None)
    first: TrainRecord | None = None
    seen: list[Conditioning] = []
    for one in range(seed, seed + 1 + FURTHER_SEEDS):
        record, compiled_graphs = _train_at(model, steps, one, compiler, say, inspect)
        seen += record.conditioning
        if first is None or record.status is not Status.ILL_CONDITIONED:
            first = record
            if graphs is not None:
                graphs[:] = compiled_graphs
        if record.status is not Status.ILL_CONDITIONED:
            break
    assert first is not None
    first.conditioning = seen
    return first


def _train_at(
    model: str,
    steps: int,
    seed: int,
    compiler: Compiler,
    say: Emit,
    inspect: Callable[[Callable[[], Any]], None] | None,
) -> tuple[TrainRecord, list[GraphRecord]]:
    """`train_model` at one seed, and the graphs that were compiled."""
    record = TrainRecord(model, backend=compiler.name, seed=seed, steps=steps, threads=torch.get_num_threads())
    if isinstance(compiler, Relaxgrad):
        record.target, record.fallback = compiler.target, compiler.fallback

    say({"event": "stage", "stage": "float64 reference"})
    problem = load_problem(model, seed)
    record.parameters = problem.parameter_count()
    _check_runs(model, problem, seed)
    start = problem_like(load_problem(model, seed), problem)

    def build() -> Problem:
        return problem_like(load_problem(model, seed), start)

    eager, compiled = Trainee(build(), seed), Trainee(build(), seed)
    try:
        reference = numbers.float64_step(build(), seed)
    except Exception as error:
        record.reason = f"{NO_REFERENCE}: {describe(error)}"
        return record, []

    say({"event": "stage", "stage": "compiling"})
    torch.compiler.reset()
    torch_api.dynamo_clear_counters()
    with compiler.record() as graphs:
        compiled.function = compiler.compile(compiled.problem.step_function())
        try:
            _train(record, eager, compiled, steps, say)
            if inspect is not None:
                inspect(compiled.step)
        except UserError:
            raise
        except Exception as error:
            _note_failure(record, error)
        _count_graphs(record, list(graphs))
    if not record.reason:
        say({"event": "stage", "stage": "validating"})
        _validate_step(record, build, compiler, reference, eager, compiled)
    return record, list(graphs)


def _validate_step(
    record: TrainRecord,
    build: Callable[[], Problem],
    compiler: Compiler,
    reference: numbers.StepValues,
    eager: Trainee,
    compiled: Trainee,
) -> None:
    """Validates gradients, buffers and losses, and asks whether eager is steady where one of them is not right."""
    first, seed = compiled.first, record.seed
    zeros = frozenset[str]()
    if any(first.gradients[n] is not None for n, g in eager.first.gradients.items() if g is None):
        zeros = zeros_of_aot(build, seed)
    record.gradients = validate(reference.gradients, eager.first.gradients, first.gradients, zeros)
    record.buffers = validate_buffers(eager.buffers_at_start, reference.buffers, eager.first.buffers, first.buffers)
    record.losses_eager, record.losses_compiled = eager.losses, compiled.losses
    record.loss_difference = numbers.curve_difference(eager.losses, compiled.losses)
    record.loss_allowed = curve_limit(eager.losses, [])
    unsure = bool(record.gradients.failed or record.buffers.failed)
    if unsure or not record.loss_difference <= record.loss_allowed:
        spread = EagerSpread(build, seed, reference, eager.first, record.steps)
        record.loss_allowed = curve_limit(eager.losses, spread.curves())
        if unsure:
            found = conditioning(seed, reference, eager.first, first, spread)
            record.conditioning.append(found)
            if found.covered:
                with compiler.record() as wide:
                    found.float64, found.float64_reason = float64_difference(
                        build, seed, compiler.compile, lambda: _did_nothing(wide)
                    )
    record.status, record.reason = verdict(record)


def train_task(arguments: dict[str, Any], emit: Emit) -> dict[str, Any]:
    """`train_model` for the process runner. Arguments: model, steps, seed, target, fallback."""
    compiler = Relaxgrad(arguments["target"], arguments["fallback"])
    with torch_api.numpy_draws_as_in_eager():
        return train_model(arguments["model"], arguments["steps"], arguments["seed"], compiler, emit).to_json()


# ---------------------------------------------------------------------------------------------------------------------
# The runs


def _check_runs(model: str, problem: Problem, seed: int) -> None:
    """One forward and backward in eager; raises UserError for whatever the user's module or loss does wrong."""
    state = copy.deepcopy(problem.module.state_dict())  # with its metadata, which some modules ask for
    seed_everything(seed)
    try:
        output = problem.module(*problem.args, **problem.kwargs)
    except Exception as error:
        raise UserError(f"{model}: the module raised {describe(error)}") from error
    try:
        loss = problem.loss(output)
    except Exception as error:
        raise UserError(f"{model}: the loss raised {describe(error)}") from error
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise UserError(f"{model}: the loss is {what}; it must be one number, as loss.mean()")
    if not loss.requires_grad:
        raise UserError(f"{model}: the loss does not depend on any trainable parameter, so there is nothing to train")
    if not bool(torch.isfinite(loss)):
        raise UserError(f"{model}: the loss is {loss.item()} in eager, before any step; check the inputs")
    try:
        loss.backward()
    except Exception as error:
        raise UserError(f"{model}: the backward pass raised {describe(error)}") from error
    problem.module.load_state_dict(state)
    problem.module.zero_grad()


def _train(record: TrainRecord, eager: Trainee, compiled: Trainee, steps: int, say: Emit) -> None:
    graphs_after_first = 0

    def on_round(index: int) -> None:
        nonlocal graphs_after_first
        if index == 0:
            graphs_after_first = torch_api.dynamo_graphs()
        losses = {"eager": eager.losses[-1], "compiled": compiled.losses[-1]}
        say({"event": "step", "step": index + 1, "losses": losses})

    candidates = {"eager": eager.candidate(), "compiled": compiled.candidate()}
    timings = interleave(candidates, steps, WARM_UP, on_round)
    record.time_eager, record.time_compiled = timings["eager"], timings["compiled"]
    record.recompiles = torch_api.dynamo_graphs() - graphs_after_first


def cause_of(error: BaseException) -> BaseException:
    """What is under what Dynamo wraps around the error of a backend, more than once for a backward."""
    while not isinstance(error, UnsupportedOps):
        cause = getattr(error, "inner_exception", None) or error.__cause__
        if cause is None:
            break
        error = cause
    return error


def _note_failure(record: TrainRecord, error: Exception) -> None:
    inner = cause_of(error)
    if isinstance(inner, UnsupportedOps):
        record.reasons = [str(reason) for reason in inner.reasons]
    record.reason = describe(inner)


# ---------------------------------------------------------------------------------------------------------------------
# The validation


def _count_graphs(record: TrainRecord, graphs: list[GraphRecord]) -> None:
    record.graphs = {kind.value: sum(g.kind is kind for g in graphs) for kind in _COUNTED}
    record.graph_details = [_graph_detail(g) for g in graphs]
    calls: Counter[str] = Counter()
    for graph in graphs:
        calls.update({kind.value: count for kind, count in graph.calls.items()})
    record.calls = {kind.value: calls[kind.value] for kind in Kind}
    record.reasons = record.reasons or [str(reason) for g in graphs for reason in g.reasons]
    breaks = torch_api.dynamo_counters().get("graph_break", {})
    # Dynamo's reasons are pages: the first line names the cause
    record.graph_breaks = {reason.splitlines()[0]: count for reason, count in breaks.items()}


_COUNTED = (GraphKind.FORWARD, GraphKind.BACKWARD, GraphKind.INFERENCE)


def _graph_detail(graph: GraphRecord) -> dict[str, Any]:
    return {
        "kind": graph.kind.value,
        "index": graph.index,
        "calls": {kind.value: count for kind, count in graph.calls.items()},
        "ops": {op: {kind.value: count for kind, count in kinds.items()} for op, kinds in graph.ops.items()},
        "reasons": [reason.to_json() for reason in graph.reasons],
        "symbolic": graph.symbolic,
        "kernels": graph.kernels,
        "seconds": dict(graph.seconds),
        "runs": graph.runs,
        "copies": graph.copies,
    }


def validate(
    reference: Mapping[str, Tensor | None],
    eager: Mapping[str, Tensor | None],
    result: Mapping[str, Tensor | None],
    zeros_of_aot: frozenset[str] = frozenset(),
) -> Validation:
    """A set of named tensors validated by the float64 rule.

    `zeros_of_aot`: names that AOTAutograd's own graph makes exactly zero; there a zero is taken where eager has None.
    """
    comparisons = numbers.compare_all(reference, eager, result)
    zeros = [c.name for c in comparisons if c.verdict is numbers.Verdict.ZERO and c.name in zeros_of_aot]
    compared = [c for c in comparisons if c.name not in zeros and not (c.passed and eager[c.name] is None)]
    worst = numbers.worst(compared)
    return Validation(
        compared=len(compared),
        failed=[str(c) for c in compared if not c.right],
        missing=[c.name for c in compared if c.verdict is numbers.Verdict.MISSING],
        less_accurate=[str(c) for c in compared if c.right and not c.passed],
        zeros=zeros,
        worst=worst.to_json() if worst else None,
        worst_ratio=worst.ratio if worst else None,
    )


def validate_buffers(
    start: Mapping[str, Tensor],
    reference: Mapping[str, Tensor],
    eager: Mapping[str, Tensor],
    result: Mapping[str, Tensor],
) -> Validation:
    """Buffers that eager's first step changes, and any that the other step changes and eager's does not."""
    changed = [n for n, b in start.items() if not (numbers.same(eager[n], b) and numbers.same(result[n], b))]
    pick: Callable[[Mapping[str, Tensor]], dict[str, Tensor | None]] = lambda b: {n: b[n] for n in changed}  # noqa: E731
    return validate(pick(reference), pick(eager), pick(result))


def verdict(record: TrainRecord) -> tuple[Status, str]:
    """Status and reason of a record whose run ended without an exception."""
    for kind in (GraphKind.FORWARD, GraphKind.BACKWARD):
        if not any(g["kind"] == kind.value and g["runs"] and _on_backend(g["calls"]) for g in record.graph_details):
            notes = record.reasons or [f"it trained in eager, with a graph break: {b}" for b in record.graph_breaks]
            why = f": {notes[0]}" if notes else ": it trained in eager"
            return Status.FAILED, f"no {kind.value} graph was compiled and run by {record.backend}{why}"
    for what, validation in (("gradient", record.gradients), ("buffer", record.buffers)):
        if validation.failed:
            return _not_right(f"{what} of {validation.fault()}", record.conditioning)
    if not record.gradients.compared:
        return Status.WRONG, "no parameter has a gradient"
    difference, allowed = record.loss_difference, record.loss_allowed
    if difference is None or allowed is None or not difference <= allowed:
        return (
            Status.WRONG,
            f"losses differ from eager's by up to {difference:.1e}, eager's own spread allows {allowed:.1e}",
        )
    if record.steps > 1 and len(set(record.losses_compiled)) == 1:
        return Status.WRONG, "the loss did not move"
    return Status.TRAINED, ""


def _on_backend(calls: Mapping[str, int]) -> bool:
    """Whether a graph with these calls has any on the backend itself."""
    return bool(calls.get(Kind.NATIVE) or calls.get(Kind.LIBRARY))


def _did_nothing(graphs: Sequence[GraphRecord]) -> str:
    """Why a step that ran is none of the backend's; empty where its forward and backward are."""
    ran = {g.kind for g in graphs if g.runs and _on_backend({k.value: n for k, n in g.calls.items()})}
    return "" if ran >= {GraphKind.FORWARD, GraphKind.BACKWARD} else "no graph ran on the backend"


def _not_right(fault: str, asked: list[Conditioning]) -> tuple[Status, str]:
    """Status and reason of a first step with a tensor that is not right."""
    found = asked[-1]
    if is_ill_conditioned(found):
        return Status.ILL_CONDITIONED, found.told()
    if not found.covered:
        return Status.WRONG, fault
    wide = found.float64_reason or f"compiled in float64 it differs by {found.float64:.1e}"
    return Status.WRONG, f"{fault}; eager moves as far, but {wide}"
