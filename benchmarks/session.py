# SPDX-License-Identifier: Apache-2.0
"""A candidate's worker: a session that compiles a training step, runs it when it is told to, and says what it cost.

Commands: `first` (the first step; leaves its values in a file for validation), `round` (timed steps), `finish` (what is
known at the end), `profile`. Between them the process is blocked on a pipe.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relaxgrad.bridge import torch_api
from relaxgrad.coverage.harness.models import describe, load_problem
from relaxgrad.coverage.harness.problem import Problem, copy_tensors, seed_everything
from relaxgrad.coverage.harness.trainee import LEARNING_RATE
from relaxgrad.coverage.harness.training import cause_of

from . import memory, probes
from .candidates import Candidate

Emit = Callable[[dict[str, Any]], None]


def session(arguments: dict[str, Any], emit: Emit) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Arguments: candidate, draw_as_eager, model, seed, protocol, and `start`: the file that the reference left.

    `own_cache`, which may be missing: Inductor's folder once it has loaded, see probes.py.
    """
    run = _Session(arguments)
    commands = {"first": run.first, "round": run.round, "finish": run.finish, "profile": run.profile}
    return lambda command: commands[command["do"]](command)


def start_of(problem: Problem) -> dict[str, Any]:
    """What makes two builds of a problem the same: parameters, buffers and inputs."""
    return {"state": problem.module.state_dict(), "args": problem.args, "kwargs": problem.kwargs}


def load_like(model: str, seed: int, start: Path) -> Problem:
    """The problem built anew, with the parameters, buffers and inputs that were left in a file."""
    problem = load_problem(model, seed)
    found = torch.load(start, weights_only=False)  # our own file of a moment ago; inputs may be any Python value
    problem.module.load_state_dict(found["state"])
    problem.args, problem.kwargs = copy_tensors((found["args"], found["kwargs"]))
    return problem


class _Session:
    """The state of one candidate's worker."""

    def __init__(self, arguments: dict[str, Any]):
        self.candidate = Candidate(arguments["candidate"], arguments["draw_as_eager"])
        self.model, self.seed = arguments["model"], arguments["seed"]
        self.with_optimizer = arguments["protocol"] == "step"
        self.own_cache = Path(arguments["own_cache"]) if arguments.get("own_cache") else None
        self.problem = load_like(self.model, self.seed, Path(arguments["start"]))
        self.optimizer = torch.optim.AdamW(self.problem.named_parameters().values(), lr=LEARNING_RATE)
        self.function: Callable[..., Any] = self.problem.step_function()
        self.update: Callable[[], Any] = self.optimizer.step
        self.graphs_after_first = 0
        self.base: int | None = None
        self.open = contextlib.ExitStack()

    def step(self) -> Tensor:
        """One step of the protocol; returns the 0-d loss."""
        loss = self.forward_backward()
        if self.with_optimizer:
            self.update()
        return loss

    def forward_backward(self) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.problem.loss_of(self.function(*self.problem.args, **self.problem.kwargs))
        loss.backward()
        return loss

    def first(self, command: dict[str, Any]) -> dict[str, Any]:
        """Compiles and runs the first step. Its loss, gradients, buffers and parameters go to the file `values`."""
        began = time.perf_counter()
        self.candidate.load()
        if self.own_cache is not None:
            probes.loaded(self.own_cache)
        loading = time.perf_counter() - began
        self.open.enter_context(self.candidate.recording())
        self.open.enter_context(torch_api.numpy_draws_as_in_eager())
        before = self.candidate.backend_seconds()
        self.base = memory.baseline()
        seed_everything(self.seed)
        try:
            start = time.perf_counter()
            self.candidate.mark((self.problem.args, self.problem.kwargs))
            self.function = self.candidate.compile(self.problem.step_function())
            loss = self.forward_backward()
            seconds = time.perf_counter() - start
            values = self.values(loss)
            torch.save(values, command["values"])  # before the optimizer changes the parameters; not timed
            if self.with_optimizer:
                start = time.perf_counter()
                self.compile_update()
                self.update()
                seconds += time.perf_counter() - start
        except Exception as error:
            return {"error": describe(cause_of(error))}
        if reason := self.candidate.did_nothing():
            return {"error": reason}
        peak = memory.over(self.base)
        if self.with_optimizer:
            values["parameters"] = {n: p.detach() for n, p in self.problem.named_parameters().items()}
            torch.save(values, command["values"])
        after = self.candidate.backend_seconds()
        self.graphs_after_first = torch_api.dynamo_graphs()
        del values, loss
        memory.start_peak()
        share = None if before is None or after is None else after - before
        return {"loading": loading, "first": seconds, "backend": share, "memory": peak}

    def compile_update(self) -> None:
        if self.candidate.compiles:
            self.update = self.candidate.compile(_update_of(self.optimizer))

    def values(self, loss: Tensor) -> dict[str, Any]:
        """What validation compares. No copies: they would count as memory of the step."""
        return {
            "loss": loss.detach(),
            "gradients": {n: p.grad for n, p in self.problem.named_parameters().items()},
            "buffers": {n: b.detach() for n, b in self.problem.module.named_buffers()},
        }

    def round(self, command: dict[str, Any]) -> dict[str, Any]:
        """`steps` timed steps after one that is not: the other candidates have taken the caches in the meantime."""
        self.step()
        seconds = []
        faults, cpu = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time()
        for _ in range(command["steps"]):
            start = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - start)
        cpu = time.process_time() - cpu
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        return {"seconds": seconds, "cpu": cpu, "page_faults": faults}

    def finish(self, command: dict[str, Any]) -> dict[str, Any]:
        """What is known at the end of the run."""
        peak = memory.over(self.base)
        calls: Counter[str] = Counter()
        for graph in self.candidate.graphs:
            calls.update({kind.value: count for kind, count in graph.calls.items()})
        breaks = torch_api.dynamo_counters().get("graph_break", {}) if self.candidate.compiles else {}
        optimizer = ""
        if self.with_optimizer:
            optimizer = f"AdamW, {'compiled' if self.candidate.compiles else 'eager'}, one parameter at a time"
        return {
            "memory": peak,
            "graphs": torch_api.dynamo_graphs() if self.candidate.compiles else 0,
            "recompiles": torch_api.dynamo_graphs() - self.graphs_after_first if self.candidate.compiles else 0,
            "graph_breaks": {reason.splitlines()[0]: count for reason, count in breaks.items()},
            "optimizer": optimizer,
            "calls": dict(calls),
            "fallbacks": [str(reason) for graph in self.candidate.graphs for reason in graph.reasons],
            "symbolic": any(graph.symbolic for graph in self.candidate.graphs),
        }

    def profile(self, command: dict[str, Any]) -> dict[str, Any]:
        """Time by kernel over `steps` steps; see profile.py."""
        from .profile import profile_step

        return profile_step(self.step, command["steps"])


def _update_of(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    def update() -> None:
        optimizer.step()

    return update
