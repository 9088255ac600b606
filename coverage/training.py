"""Trains one problem in eager and compiled, side by side, and judges whether the compiled one trained.

Note [The protocol of a training comparison]
Both contenders start from the same parameters and inputs and from the same random state (`seed_everything(seed)`),
take the same AdamW steps on the same batch, and take turns step by step; each has a random state of its own, restored
before its step, so dropout masks are the same as long as the compiled step draws what eager draws. A step is
zero_grad, forward, loss, backward, optimizer. The first step also gives the gradients, which are judged against a
float64 run (numbers.py), and the compile time. The steps after the warm-up give the times.
"""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.errors import UnsupportedOps, UserError
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.schemas import GraphKind, GraphRecord

from . import numbers
from .models import describe, load_problem
from .problem import Problem, copy_tensors, random_state, seed_everything, set_random_state
from .timing import Contender, interleave
from .train_record import NO_REFERENCE, Judgement, Status, TrainRecord

LEARNING_RATE = 1e-3
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
) -> TrainRecord:
    """Trains `model` (as `load_problem` takes it) for `steps` AdamW steps in eager and compiled, in this process.

    Raises UserError where the model itself is wrong, eager included; what goes wrong in the compiled run is in the
    record. Events to `emit`: {"event": "stage", "stage": str} and {"event": "step", "step": int, "losses": {...}}.
    `inspect` gets the compiled step, to run it more often, after training and before anything is judged.
    """
    if steps < 1:
        raise UserError(f"steps must be at least 1, not {steps}")
    say = emit or (lambda event: None)
    record = TrainRecord(model, backend=compiler.name, seed=seed, steps=steps, threads=torch.get_num_threads())
    if isinstance(compiler, Relaxgrad):
        record.target, record.fallback = compiler.target, compiler.fallback

    say({"event": "stage", "stage": "float64 reference"})
    problem = load_problem(model, seed)
    record.parameters = problem.parameter_count()
    _check_runs(model, problem, seed)
    eager = _Run(problem_like(load_problem(model, seed), problem), seed)
    compiled = _Run(problem_like(load_problem(model, seed), eager.problem), seed)
    try:
        reference = numbers.float64_step(problem_like(load_problem(model, seed), eager.problem), seed)
    except Exception as error:
        record.reason = f"{NO_REFERENCE}: {describe(error)}"
        return record

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
    if record.reason:
        return record
    record.gradients = judgement(reference.gradients, eager.first.gradients, compiled.first.gradients)
    before, first = eager.buffers_at_start, compiled.first
    record.buffers = judge_buffers(before, reference.buffers, eager.first.buffers, first.buffers)
    record.losses_eager, record.losses_compiled = eager.losses, compiled.losses
    record.loss_difference = numbers.curve_difference(eager.losses, compiled.losses)
    record.status, record.reason = verdict(record)
    return record


def train_task(arguments: dict[str, Any], emit: Emit) -> dict[str, Any]:
    """`train_model` for the process runner. Arguments: model, steps, seed, target, fallback."""
    compiler = Relaxgrad(arguments["target"], arguments["fallback"])
    with torch_api.numpy_draws_as_in_eager():
        return train_model(arguments["model"], arguments["steps"], arguments["seed"], compiler, emit).to_json()


# ---------------------------------------------------------------------------------------------------------------------
# The runs


class _Run:
    """One contender: its own copy of the problem, its optimizer and its random state."""

    def __init__(self, problem: Problem, seed: int):
        self.problem = problem
        self.function: Callable[..., Any] = problem.step_function()
        self.optimizer = torch.optim.AdamW(problem.named_parameters().values(), lr=LEARNING_RATE)
        self.losses: list[float] = []
        self.buffers_at_start = {name: b.detach().clone() for name, b in problem.module.named_buffers()}
        self.first: numbers.StepValues
        self.first_of_step = True
        seed_everything(seed)
        self.random_state = random_state()

    def contender(self) -> Contender:
        return Contender(self.step, lambda: set_random_state(self.random_state), self.finish)

    def step(self) -> Tensor:
        """zero_grad, forward, loss, backward, optimizer; returns the 0-d loss."""
        self.optimizer.zero_grad()
        output = self.function(*self.problem.args, **self.problem.kwargs)
        loss = self.problem.loss_of(output)
        loss.backward()
        if self.first_of_step:  # before the optimizer changes the parameters; a copy, once, in a step that is not timed
            self.first_of_step = False
            self.first = numbers.step_values(self.problem, loss)
        self.optimizer.step()
        return loss

    def finish(self, loss: Tensor) -> None:
        self.losses.append(float(loss.detach()))
        self.random_state = random_state()


def problem_like(problem: Problem, other: Problem) -> Problem:
    """`problem` (built anew) with the parameters, buffers and inputs of `other`, for factories that are not repeatable.

    Building anew instead of deepcopy: a loss that closes over its module must see its own module.
    """
    problem.module.load_state_dict(other.module.state_dict())
    problem.args, problem.kwargs = copy_tensors((other.args, other.kwargs))
    return problem


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


def _train(record: TrainRecord, eager: _Run, compiled: _Run, steps: int, say: Emit) -> None:
    graphs_after_first = 0

    def on_round(index: int) -> None:
        nonlocal graphs_after_first
        if index == 0:
            graphs_after_first = torch_api.dynamo_graphs()
        losses = {"eager": eager.losses[-1], "compiled": compiled.losses[-1]}
        say({"event": "step", "step": index + 1, "losses": losses})

    contenders = {"eager": eager.contender(), "compiled": compiled.contender()}
    timings = interleave(contenders, steps, WARM_UP, on_round)
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
# The judgement


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


def judgement(
    reference: Mapping[str, Tensor | None], eager: Mapping[str, Tensor | None], result: Mapping[str, Tensor | None]
) -> Judgement:
    """A set of named tensors judged by the float64 rule."""
    comparisons = numbers.compare_all(reference, eager, result)
    compared = [c for c in comparisons if c.verdict is not numbers.Verdict.PASS or eager[c.name] is not None]
    worst = numbers.worst(compared)
    return Judgement(
        compared=len(compared),
        failed=[str(c) for c in compared if not c.passed],
        missing=[c.name for c in compared if c.verdict is numbers.Verdict.MISSING],
        worst=worst.to_json() if worst else None,
        worst_ratio=worst.ratio if worst else None,
    )


def judge_buffers(
    start: Mapping[str, Tensor],
    reference: Mapping[str, Tensor],
    eager: Mapping[str, Tensor],
    result: Mapping[str, Tensor],
) -> Judgement:
    """Buffers that eager's first step changes, and any that the other step changes and eager's does not."""
    changed = [n for n, b in start.items() if not (numbers.same(eager[n], b) and numbers.same(result[n], b))]
    pick: Callable[[Mapping[str, Tensor]], dict[str, Tensor | None]] = lambda b: {n: b[n] for n in changed}  # noqa: E731
    return judgement(pick(reference), pick(eager), pick(result))


def verdict(record: TrainRecord) -> tuple[Status, str]:
    """Status and reason of a record whose run ended without an exception."""
    for kind in (GraphKind.FORWARD, GraphKind.BACKWARD):
        graphs = [g for g in record.graph_details if g["kind"] == kind.value]
        if not any(g["runs"] and (g["calls"].get("native") or g["calls"].get("library")) for g in graphs):
            notes = record.reasons or [f"it trained in eager, with a graph break: {b}" for b in record.graph_breaks]
            why = f": {notes[0]}" if notes else ": it trained in eager"
            return Status.FAILED, f"no {kind.value} graph was compiled and run by {record.backend}{why}"
    for what, judged in (("gradient", record.gradients), ("buffer", record.buffers)):
        if judged.failed:
            return Status.WRONG, f"{what} of {judged.fault()}"
    if not record.gradients.compared:
        return Status.WRONG, "no parameter has a gradient"
    difference = record.loss_difference
    if difference is None or not difference <= numbers.LOSS_TOLERANCE:
        return (
            Status.WRONG,
            f"losses differ from eager's by up to {difference:.1e}, allowed {numbers.LOSS_TOLERANCE:.0e}",
        )
    if record.steps > 1 and len(set(record.losses_compiled)) == 1:
        return Status.WRONG, "the loss did not move"
    return Status.TRAINED, ""
