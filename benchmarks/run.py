# SPDX-License-Identifier: Apache-2.0
"""One model, every candidate: right first, then timed in interleaved rounds. The parent's side; it imports no torch.

Note [The protocol of a benchmark]
- A worker process for each candidate, with the same parameters, inputs and random state, and the same environment.
  Exactly one runs at any time; the others are blocked on a pipe. Before the first of them runs they all import torch
  and build the model, at once: nothing of that is measured.
- Cold: caches off, and the cache folder empty. A process first imports what it needs and compiles a function of one
  line; that is `loading`. Then the first step of the model is timed, and with it the backend's own share.
- Warm: one process fills the cache folder, and the first step of another on the same folder is timed.
- The first step of every candidate, cold and warm, is validated by the float64 rule. One that is wrong is not timed;
  one that is right and less accurate than eager is, and so is one where eager itself moves as far (its record says so).
  Inductor draws dropout masks with a generator of its own, so where its first step is another than eager's, one more
  process in which it draws as eager does is validated in its place; timed is the one with its own, which is the faster.
- Rounds A B A B ...: each runs a step that is not timed (the others have taken the caches), then so many timed ones
  as take ROUND_SECONDS of the slowest candidate, the same number for all. Warm-up rounds are left out. The value of
  a round is the mean of its steps; reported are the median of the rounds, their interquartile range, and the median
  of the ratios of single rounds.
- Memory: highest resident memory over the memory just before the model's first step, after `loading`.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relaxgrad.coverage.harness.process import Outcome, State, Worker, stop_workers
from relaxgrad.coverage.harness.train_record import Validation

from . import probes as inductor_probes
from .memory import TUNED_MALLOC
from .names import EAGER, INDUCTOR, OWN_RANDOM, RELAXGRAD, SYMBOLIC
from .record import CandidateRecord, ModelRecord, Settings, Start, Status, ratio_of, step_of

ROUND_SECONDS = 0.05  # that the timed steps of the slowest candidate take in one round, at least
MOST_STEPS = 20  # of a candidate in one round
PAUSE = 0.01  # seconds between candidates with several threads: the last one's pool spins a while before it sleeps
PROFILED_STEPS = 9

Say = Callable[[str], None]


@dataclass(frozen=True)
class Sessions:
    """The sessions that the workers open. Tests put their own in place."""

    reference: str = "relaxgrad.benchmarks.reference:session"
    candidate: str = "relaxgrad.benchmarks.session:session"


@dataclass
class _Run:
    """What is open while one model is measured."""

    model: str
    settings: Settings
    time_limit: float
    folder: Path
    stack: contextlib.ExitStack
    sessions: Sessions
    say: Say
    probes: Path | None = None
    workers: dict[str, Worker] = field(default_factory=dict)

    def folder_of(self, candidate: str) -> Path:
        """Where a candidate keeps its caches and leaves its values."""
        folder = self.folder / candidate.replace(":", ".")
        folder.mkdir(exist_ok=True)
        return folder

    def worker(self, candidate: str, cache: dict[str, str], draw_as_eager: bool = False) -> Worker:
        arguments = {
            "candidate": candidate,
            "draw_as_eager": draw_as_eager,
            "model": self.model,
            "seed": self.settings.seed,
            "protocol": self.settings.protocol,
            "start": str(self.folder / "start.pt"),
        }
        if self.probes is not None and candidate == INDUCTOR and cache[inductor_probes.OFF] == "1":
            arguments["own_cache"] = cache[inductor_probes.FOLDER]
            cache = inductor_probes.environment(cache, self.probes)
        environment = cache | (TUNED_MALLOC if self.settings.malloc == "tuned" else {})
        return Worker(
            self.sessions.candidate,
            arguments,
            self.time_limit,
            threads=self.settings.threads,
            environment=environment,
        )


def candidates_of(settings: Settings) -> list[str]:
    """The candidates in the order in which a round runs them."""
    return [RELAXGRAD, *(SYMBOLIC if settings.dynamic else []), *settings.against]


def protocol_in_words(settings: Settings) -> str:
    """As in the tables and the JSON."""
    what = {
        "fwd_bwd": "zero_grad, forward, loss, backward; the loss is compiled with the model",
        "step": "zero_grad, forward, loss, backward, AdamW (one parameter at a time; compiled too, but for eager)",
    }[settings.protocol]
    rounds = f"medians of {settings.rounds} interleaved rounds after {settings.warm_up} of warm-up"
    threads = f"{settings.threads} thread{'' if settings.threads == 1 else 's'}"
    return f"{what}; {rounds}; {threads}; malloc {settings.malloc}"


def bench_model(
    model: str,
    settings: Settings,
    time_limit: float = 900.0,
    start_up: bool = True,
    profile: bool = False,
    say: Say = lambda text: None,
    sessions: Sessions = Sessions(),
    probes: Path | None = None,
) -> ModelRecord:
    """Measures one model. Whatever a worker does ends in the record; only an interrupt is passed on.

    `time_limit`: seconds for one answer of a worker, the first step the longest. `start_up`: measure the start with a
    warm cache as well. `say` gets a few words at every stage. `probes`: a folder in which the models of a run share
    what Inductor finds out about the machine; the `loading` of all but the first is shorter then.
    """
    began = time.monotonic()
    record = ModelRecord(model, settings.malloc, protocol=protocol_in_words(settings))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relaxgrad-bench-")))
        run = _Run(model, settings, time_limit, folder, stack, sessions, say, probes)
        if _start_all(run, record, start_up):
            _time_all(run, record)
            _finish_all(run, record, profile)
    record.seconds = time.monotonic() - began
    return record


# ---------------------------------------------------------------------------------------------------------------------
# First steps, and whether they are right


def _start_all(run: _Run, record: ModelRecord, start_up: bool) -> bool:
    """First steps of all candidates, and their validation. False where the model itself cannot be measured."""
    run.say("float64 reference")
    arguments = {"model": run.model, "seed": run.settings.seed, "start": str(run.folder / "start.pt")}
    with Worker(run.sessions.reference, arguments, run.time_limit, threads=run.settings.threads) as reference:
        outcome = reference.opened
        if outcome.state is State.OK:
            outcome = reference.call({"do": "parameters"}, run.time_limit)
        if outcome.value is None:
            record.reason = outcome.message.removeprefix(f"{run.model}: ")
            record.user_error = outcome.state is State.USER_ERROR
            return False
        record.parameters, record.inputs = outcome.value["parameters"], outcome.value["inputs"]
        run.say("the processes of the candidates")
        opened = _open_all(run)
        for name, worker in opened.items():
            found = record.candidates[name] = CandidateRecord(name)
            run.say(f"{name}: first step, caches off")
            _cold(run, found, worker, reference)
            if start_up and name not in (EAGER, *SYMBOLIC) and found.status is Status.TIMED:
                run.say(f"{name}: first step on a warm cache")
                _warm(run, found, reference)
    return True


def _open_all(run: _Run) -> dict[str, Worker]:
    """The workers of all candidates in the order of a round, with caches off; all open at once."""

    def one(name: str) -> Worker:
        worker = run.worker(name, cache_environment(run.folder_of(name), on=False))
        run.stack.callback(worker.close)
        return worker

    names = candidates_of(run.settings)
    with ThreadPoolExecutor(len(names)) as pool:
        try:
            return dict(zip(names, pool.map(one, names), strict=True))
        except BaseException:  # an interrupt: the pool waits for its threads, and those for their workers
            stop_workers()
            raise


def _cold(run: _Run, found: CandidateRecord, worker: Worker, reference: Worker) -> None:
    """The first step with caches off; its worker stays open where it is right."""
    folder = run.folder_of(found.name)
    found.cold, found.reason = _first(run, worker, folder / "values.pt")
    if found.cold is None:
        worker.close()
        return
    wrong = _validate(run, reference, folder / "values.pt", found)
    if wrong and found.name in OWN_RANDOM:
        run.say(f"{found.name}: first step with eager's random numbers")
        wrong = _validate_with_eagers_random(run, found, reference)
    update = found.validation.get("parameters")  # AdamW on the candidate's own gradients: no kink is in it
    if wrong and found.validation and not (update and update.failed):
        run.say(f"{found.name}: whether eager is steady")
        command = {"do": "conditioning", "values": str(folder / "values.pt"), "candidate": found.name}
        asked = reference.call(command, run.time_limit).value
        if asked is not None and asked["ill_conditioned"]:
            found.conditioning, wrong = asked["told"], ""
    if wrong:
        found.status, found.reason = (Status.FAILED, wrong) if not found.validation else (Status.WRONG, wrong)
        worker.close()
        return
    found.status = Status.TIMED
    run.workers[found.name] = worker


def _validate_with_eagers_random(run: _Run, found: CandidateRecord, reference: Worker) -> str:
    """What is wrong with the first step of a process in which the candidate draws as eager does. As `_validate`."""
    folder = run.folder_of(found.name)  # the headers that the compiler prepared are there
    with run.worker(found.name, cache_environment(folder, on=False), draw_as_eager=True) as worker:
        start, reason = _first(run, worker, folder / "values.pt")
    if start is None:
        found.validation = {}
        return f"with eager's random numbers: {reason}"
    found.own_random = True
    return _validate(run, reference, folder / "values.pt", found)


def _warm(run: _Run, found: CandidateRecord, reference: Worker) -> None:
    """Fills a cache in one process and takes the first step of a second one, validated too."""
    folder = run.folder_of(found.name)
    for filled in (False, True):
        with run.worker(found.name, cache_environment(folder, on=True)) as worker:
            found.warm, found.warm_reason = _first(run, worker, folder / "values.pt")
            if found.warm is None:
                return
            if filled:
                worker.call({"do": "round", "steps": 2}, run.time_limit)
                told = worker.call({"do": "finish"}, run.time_limit).value
                found.warm_memory = None if told is None else told["memory"]
    if found.own_random:  # the numbers are not eager's, and say nothing
        return
    wrong = _validate(run, reference, folder / "values.pt", CandidateRecord(found.name))
    if wrong and not found.conditioning:
        found.warm, found.warm_reason = None, f"wrong: {wrong}"


def cache_environment(folder: Path, on: bool) -> dict[str, str]:
    """The environment of a worker whose caches live in `folder`, or are off."""
    environment = {
        inductor_probes.FOLDER: str(folder / "inductor"),
        "RELAXGRAD_CACHE_DIR": str(folder / "relaxgrad"),
    }
    disable = "0" if on else "1"
    return environment | {"RELAXGRAD_CACHE": "1" if on else "0", inductor_probes.OFF: disable}


def _first(run: _Run, worker: Worker, values: Path) -> tuple[Start | None, str]:
    """The first step of a worker, or why there is none."""
    outcome = worker.opened
    if outcome.state is State.OK:
        outcome = worker.call({"do": "first", "values": str(values)}, run.time_limit)
    if outcome.value is None:
        return None, outcome.message
    if "error" in outcome.value:
        return None, str(outcome.value["error"])
    return Start(**outcome.value), ""


def _validate(run: _Run, reference: Worker, values: Path, found: CandidateRecord) -> str:
    """Validates a first step into `found.validation`; returns what is wrong with it, in one line."""
    outcome = reference.call({"do": "validate", "values": str(values)}, run.time_limit)
    if outcome.value is None:
        return f"not validated: {outcome.message}"
    found.validation = {what: Validation(**validation) for what, validation in outcome.value.items()}
    for what, validation in found.validation.items():
        if validation.failed:
            return f"{what}: {validation.fault()}"
    if not found.validation["gradients"].compared:
        return "no parameter has a gradient"
    return ""


# ---------------------------------------------------------------------------------------------------------------------
# Rounds


def _time_all(run: _Run, record: ModelRecord) -> None:
    """The rounds. A candidate that fails in one is out, and its row says why."""
    settings = run.settings
    racing = dict(run.workers)
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in racing}
    slowest: list[float] = []
    steps = 1
    for index in range(settings.warm_up + settings.rounds):
        run.say(
            f"round {index + 1} of {settings.warm_up + settings.rounds}, {steps} step{'s' if steps > 1 else ''} each"
        )
        for name in list(racing):
            outcome = _round_of(run, racing[name], steps)
            if outcome.value is None:
                found = record.candidates[name]
                found.status, found.reason = Status.FAILED, f"round {index + 1}: {outcome.message}"
                racing.pop(name).close()
                del rounds[name], run.workers[name]
                continue
            rounds[name].append(outcome.value)
        if index < settings.warm_up:
            slowest.append(max((max(t[-1]["seconds"]) for t in rounds.values()), default=ROUND_SECONDS))
            if index == settings.warm_up - 1:
                steps = min(max(math.ceil(ROUND_SECONDS / statistics.median(slowest)), 1), MOST_STEPS)
    for name, taken in rounds.items():
        record.candidates[name].step = step_of(taken[settings.warm_up :])
    own = record.candidates[RELAXGRAD].step
    if own is not None:
        others = {name: found.step for name, found in record.candidates.items() if name != RELAXGRAD}
        record.ratios = {name: ratio_of(step, own) for name, step in others.items() if step is not None}


def _round_of(run: _Run, worker: Worker, steps: int) -> Outcome:
    if run.settings.threads > 1:
        time.sleep(PAUSE)
    return worker.call({"do": "round", "steps": steps}, run.time_limit)


def _finish_all(run: _Run, record: ModelRecord, profile: bool) -> None:
    """What the workers tell at the end; the profile of relaxgrad last, for it makes large tensors."""
    for name, worker in run.workers.items():
        outcome = worker.call({"do": "finish"}, run.time_limit)
        if outcome.value is not None:
            for key, value in outcome.value.items():
                setattr(record.candidates[name], key, value)
    own = record.candidates[RELAXGRAD].step
    if profile and own is not None:
        run.say("profile")
        outcome = run.workers[RELAXGRAD].call({"do": "profile", "steps": PROFILED_STEPS}, run.time_limit)
        record.profile, record.profile_reason = outcome.value, outcome.message
