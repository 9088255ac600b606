# SPDX-License-Identifier: Apache-2.0
"""One model through the whole audit: trained beside eager, its nodes classified, its blockers measured.

`audit_model` runs in the caller's process and puts everything that compiles into worker processes; `audit_task` is what
a worker does.
"""

from __future__ import annotations

import contextlib
import gc
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relaxgrad.bridge.kinds import Kind

from ..harness.process import Outcome, State, run_task
from ..harness.train_record import NO_REFERENCE
from .record import AuditRecord, Cause, Verdict

if TYPE_CHECKING:
    from relaxgrad.bridge.schemas import GraphRecord

TASK = "relaxgrad.coverage.audit.auditor:audit_task"
PARTIAL = "partial"  # the event of a record whose model has trained
INSTALLATION_TASK = "relaxgrad.coverage.audit.auditor:installation_task"
STEPS = 8  # AdamW steps of the training check
PROFILED = 4  # further steps, with the profiler on

Emit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class AuditOptions:
    """What to do with each model."""

    seed: int = 0
    steps: int = STEPS
    dry: bool = False  # compile nothing: translate only
    blockers: bool = True  # measure dynamic shapes and in-place updates; without, training and its operators alone
    upstream: bool = True  # TVM's own importer beside it
    onnx: bool = False  # and the path through ONNX
    time_limit: float = 600.0  # seconds of the worker
    memory_limit: int | None = None  # resident bytes of a worker


def audit_model(model: str, options: AuditOptions, listen: Emit | None = None) -> AuditRecord:
    """Audits one model; whatever happens in a worker is in the record. Raises nothing for it."""
    arguments = {"model": model, "seed": options.seed, "steps": options.steps, "dry": options.dry}
    arguments |= {"upstream": options.upstream, "onnx": options.onnx, "blockers": options.blockers}
    with tempfile.TemporaryDirectory(prefix="relaxgrad-audit-") as folder:
        # Training compiles from nothing, as a user's first run does; after it the blockers compile what is new.
        own = {"RELAXGRAD_CACHE": "1", "RELAXGRAD_CACHE_DIR": folder}
        partial: dict[str, Any] = {}

        def hear(event: dict[str, Any]) -> None:
            if event["event"] == PARTIAL:
                partial.update(event["record"])
            elif listen is not None:
                listen(event)

        outcome = run_task(TASK, arguments, options.time_limit, hear, memory=options.memory_limit, environment=own)
    record = _record(model, outcome, partial)
    record.group, record.tags = _place_in_zoo(model)
    return record


def _record(model: str, outcome: Outcome, partial: dict[str, Any]) -> AuditRecord:
    """`partial`: what was known before the worker ended without a result; empty where it had not trained yet."""
    if value := dict(outcome.value or partial):
        value["verdict"], value["cause"] = Verdict(value["verdict"]), Cause(value["cause"])
        record = AuditRecord(**value)
        if outcome.value is None:  # how the model trains is known; the rest of its audit is not
            told = f"its audit ended after training: {outcome.message.removeprefix(f'{model}: ')}"
            record.reason = f"{record.reason}; {told}" if record.reason else told
            record.seconds = {"all": round(outcome.seconds, 1)}
        return record
    causes = {
        State.USER_ERROR: Cause.MODEL,
        State.CRASHED: Cause.CRASH,
        State.TIMEOUT: Cause.TIMEOUT,
        State.OUT_OF_MEMORY: Cause.MEMORY,
    }
    return AuditRecord(
        model,
        cause=causes.get(outcome.state, Cause.ERROR),
        reason=outcome.message.removeprefix(f"{model}: "),
        seconds={"all": round(outcome.seconds, 1)},
        worker_output=outcome.output[-2000:] if outcome.state is State.CRASHED else "",
    )


def _place_in_zoo(model: str) -> tuple[str, list[str]]:
    from ..zoo import ZOO

    entry = ZOO.get(model)
    return (entry.group.value, list(entry.tags)) if entry is not None else ("", [])


def audit_installation(time_limit: float = 300.0) -> list[dict[str, Any]]:
    """The findings that are the same for every model: API stability and maintenance. Raises RelaxgradError."""
    from relaxgrad.bridge.errors import RelaxgradError

    outcome = run_task(INSTALLATION_TASK, {}, time_limit)
    if outcome.value is None:
        raise RelaxgradError(f"the audit of the installation failed: {outcome.message}\n{outcome.traceback}")
    findings: list[dict[str, Any]] = outcome.value["findings"]
    return findings


# ---------------------------------------------------------------------------------------------------------------------
# In the worker


def installation_task(arguments: dict[str, Any], emit: Emit) -> dict[str, Any]:
    """For the process runner; takes no arguments."""
    from ..blockers import api_stability, maintenance

    return {"findings": [api_stability.measure().to_json(), maintenance.measure().to_json()]}


def audit_task(arguments: dict[str, Any], emit: Emit) -> dict[str, Any]:
    """For the process runner; arguments: model and the AuditOptions. Raises UserError where the model is wrong."""
    from relaxgrad.bridge.torch_api import numpy_draws_as_in_eager

    model, seed = arguments["model"], arguments["seed"]
    with numpy_draws_as_in_eager():
        if arguments["dry"]:
            gc.disable()  # it keeps what it makes to the end, and is the last that this process does
            return _audit_dry(model, seed, emit).to_json()
        wanted = {key: arguments[key] for key in ("upstream", "onnx", "blockers")}
        return _audit(model, seed, arguments["steps"], emit, **wanted).to_json()


def _audit_dry(model: str, seed: int, emit: Emit) -> AuditRecord:
    """What would run where: captured and translated, nothing compiled."""
    from relaxgrad.bridge.backend import planned_nodes

    from ..blockers import dynamic_shapes, in_place, operators
    from ..harness.models import load_problem
    from ..verification import verification_of_ops

    clock = _Clock(emit)
    with clock("capture"):
        problem = load_problem(model, seed)
        captured = problem.capture()
    with clock("translate"):
        uses = operators.op_uses([n for g in captured for n in planned_nodes(g)], verification_of_ops())
    with clock("graph breaks"):
        traced, breaks = dynamic_shapes.explained(load_problem(model, seed), seed)
    record = AuditRecord(model, Verdict.DRY, parameters=problem.parameter_count())
    record.ops = [use.to_json() for use in uses]
    record.findings = {
        f.blocker.value: f.to_json()
        for f in (
            operators.analyse(uses),
            dynamic_shapes.without_running(traced, breaks),
            in_place.without_running(captured),
        )
    }
    record.seconds = clock.seconds
    return record


def _audit(model: str, seed: int, steps: int, emit: Emit, *, upstream: bool, onnx: bool, blockers: bool) -> AuditRecord:
    from relaxgrad.bridge.errors import UserError

    from ..blockers import dynamic_shapes, in_place, operators
    from ..harness.models import load_problem
    from ..harness.training import train_model
    from ..upstream_importer import keep_run, run_upstream, summary
    from ..verification import verification_of_ops

    clock = _Clock(emit)
    profile = _Profile()
    graphs: list[GraphRecord] = []
    with clock("train"):
        train = train_model(model, steps, seed, emit=emit, inspect=profile, graphs=graphs)
    record = AuditRecord(model, parameters=train.parameters, train=train.to_json())
    record.verdict, record.cause, record.reason = verdict(record.train or {})

    def build() -> Any:
        return load_problem(model, seed)

    uses = operators.op_uses([n for g in graphs for n in g.nodes], verification_of_ops())
    record.ops = [use.to_json() for use in uses]
    findings = [operators.analyse(uses, profile.seconds, profile.step_seconds)]

    def keep() -> None:
        record.findings = {finding.blocker.value: finding.to_json() for finding in findings}
        emit({"event": PARTIAL, "record": record.to_json()})

    keep()
    if not blockers:
        record.seconds = clock.seconds
        return record
    with clock("dynamic shapes"):
        findings.append(dynamic_shapes.measure(build, seed))
    with clock("in place"):
        runs: list[Any] = []
        try:
            captured = build().capture(keep_run(runs))
        except UserError:  # nothing to capture: the verdict has said so
            captured = []
        findings.append(in_place.measure(build, captured, graphs))
    keep()
    if upstream:
        with clock("upstream importer"):
            record.upstream = run_upstream(runs)
        record.findings[findings[0].blocker.value]["numbers"]["upstream_importer"] = summary(record.upstream)
    if onnx:
        from ..onnx_path import run_onnx

        with clock("ONNX"):
            record.onnx = run_onnx(runs)
    record.seconds = clock.seconds
    return record


def verdict(train: dict[str, Any]) -> tuple[Verdict, Cause, str]:
    """Verdict, cause and reason from a TrainRecord."""
    if train["status"] == "trained":
        partly = train["calls"].get(Kind.FALLBACK, 0) or sum(train["graph_breaks"].values())
        return (Verdict.WITH_FALLBACKS if partly else Verdict.YES), Cause.NONE, ""
    if train["status"] == "ill-conditioned":
        return Verdict.ILL_CONDITIONED, Cause.NONE, train["reason"]
    if train["status"] == "wrong":
        return Verdict.NO, Cause.WRONG, train["reason"]
    if train["reason"].startswith(NO_REFERENCE):
        return Verdict.NO, Cause.NO_REFERENCE, train["reason"]
    if not train["graph_details"]:
        return Verdict.NO, Cause.NOT_CAPTURED, train["reason"]
    ran = any(g["runs"] for g in train["graph_details"])
    return Verdict.NO, (Cause.REFUSED if ran and train["losses_compiled"] else Cause.ERROR), train["reason"]


class _Clock:
    """Times stages, and says which one begins."""

    def __init__(self, emit: Emit):
        self.seconds: dict[str, float] = {}
        self._emit = emit

    @contextlib.contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        self._emit({"event": "stage", "stage": stage})
        start = time.monotonic()
        yield
        self.seconds[stage] = round(time.monotonic() - start, 1)


class _Profile:
    """Runs the compiled step with the profiler on, after training: seconds a step by kind, and of the whole step."""

    def __init__(self) -> None:
        self.seconds: dict[Kind, float] | None = None
        self.step_seconds: float | None = None

    def __call__(self, step: Callable[[], Any]) -> None:
        from relaxgrad.bridge.runtime.profile import profile_kernels

        start = time.perf_counter()
        with profile_kernels() as times:
            for _ in range(PROFILED):
                step()
        self.step_seconds = (time.perf_counter() - start) / PROFILED
        by_kind: Counter[Kind] = Counter()
        for kernel in times:
            by_kind[kernel.kind] += kernel.seconds / PROFILED  # type: ignore[assignment]  # a Counter of floats
        self.seconds = dict(by_kind)
