# SPDX-License-Identifier: Apache-2.0
"""What a benchmark finds out: plain data, a schema number, JSON. Imports no torch."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from relaxgrad.coverage.harness.timing import summarize
from relaxgrad.coverage.harness.train_record import Validation

SCHEMA = 2  # of the JSON; raised when a key changes its meaning or goes away
AS_EAGER_MULTIPLE = 4.0  # coverage.numbers.AS_EAGER.multiple, without importing torch; a test holds it


class Status(StrEnum):
    """What became of one candidate."""

    TIMED = "timed"
    WRONG = "wrong"  # its first step is not right, and eager is steadier; it was never timed
    FAILED = "failed"  # it did not compile, crashed, or took too long


@dataclass(frozen=True)
class Settings:
    """How a model is measured. What two runs must share for their ratios to be compared."""

    against: tuple[str, ...] = ("inductor", "eager")
    threads: int = 1
    protocol: str = "fwd_bwd"  # or "step"
    dynamic: bool = False
    rounds: int = 15
    warm_up: int = 3
    malloc: str = "system"  # or "tuned"
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Start:
    """The first step of a model in a fresh process. Times in seconds, memory in bytes."""

    loading: float  # imports, and a function of one line compiled before: what a process pays once
    first: float  # the first step: tracing, compiling, running
    backend: float | None  # of it, the backend's own share; None for eager and where it is not told
    memory: int | None  # highest resident memory of it over the memory before it, what the compiler needs included


@dataclass
class Step:
    """Wall time of a step over the measured rounds, in seconds."""

    rounds: list[float]  # a round's steps on average
    steps: int  # timed in each round
    median: float
    spread: float | None  # interquartile range; None below 4 rounds
    cpu: float  # CPU time over wall time, of all threads: below 1, it had to wait for a CPU
    cpu_median: float  # CPU seconds of a step, median of the rounds
    page_faults: float  # minor ones, a step


@dataclass
class CandidateRecord:
    """What was found about one candidate on one model."""

    name: str
    status: Status = Status.FAILED
    reason: str = ""  # one line, for all but TIMED
    cold: Start | None = None  # caches off
    warm: Start | None = None  # a second process on the cache that another one filled
    warm_reason: str = ""  # why there is none
    validation: dict[str, Validation] = field(default_factory=dict)  # of loss, gradients, ...
    conditioning: str = ""  # a first step that was not right and is timed: what eager does there, with figures
    own_random: bool = False  # timed with random numbers of its own, and validated in a process that drew as eager does
    step: Step | None = None
    memory: int | None = None  # bytes: highest resident memory of the steps after the first, over the memory before it
    warm_memory: int | None = None  # the same in the process with the warm cache, which has compiled nothing
    graphs: int = 0  # that Dynamo made, forward and backward together as one
    graph_breaks: dict[str, int] = field(default_factory=dict)  # first line of Dynamo's reason -> count
    recompiles: int = 0  # graphs that Dynamo made after the first step
    optimizer: str = ""  # how the optimizer's step ran, under the protocol "step"
    calls: dict[str, int] = field(default_factory=dict)  # relaxgrad: nodes of all graphs by kind
    fallbacks: list[str] = field(default_factory=list)  # relaxgrad: why ops ran in ATen
    symbolic: bool = False  # relaxgrad: whether a graph had symbolic sizes: a model's code may need their values


@dataclass
class Ratio:
    """How many times as long a baseline's step takes: above 1, relaxgrad is faster."""

    of_medians: float
    median: float  # of the ratios of single rounds
    spread: float | None  # interquartile range of these; None below 4 rounds
    rounds: int
    of_cpu: float | None  # of the medians of CPU time: what a busy machine leaves to go by


@dataclass
class ModelRecord:
    """One model under one setting of malloc."""

    model: str
    malloc: str
    reason: str = ""  # one line, where nothing could be measured
    user_error: bool = False  # the model itself is wrong
    parameters: int = 0
    inputs: list[str] = field(default_factory=list)  # shape of each tensor that the module gets, as "input_ids 4x128"
    protocol: str = ""  # in words
    candidates: dict[str, CandidateRecord] = field(default_factory=dict)
    ratios: dict[str, Ratio] = field(default_factory=dict)  # baseline -> ratio to relaxgrad
    profile: dict[str, Any] | None = None  # see profile.py
    profile_reason: str = ""  # why there is none, where one was asked for
    seconds: float = 0.0  # the whole measurement

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def step_of(rounds: Sequence[dict[str, Any]]) -> Step:
    """The Step of the measured rounds of one candidate; each has the seconds, cpu seconds and page faults of its steps.

    All rounds have the same number of steps.
    """
    means = [statistics.fmean(one["seconds"]) for one in rounds]
    timing = summarize(means, warm_up=0)
    steps = len(rounds[0]["seconds"])
    wall = sum(sum(one["seconds"]) for one in rounds)
    return Step(
        rounds=means,
        steps=steps,
        median=statistics.median(means),
        spread=timing.spread,
        cpu=sum(one["cpu"] for one in rounds) / wall if wall else 0.0,
        cpu_median=statistics.median(one["cpu"] / steps for one in rounds),
        page_faults=sum(one["page_faults"] for one in rounds) / (steps * len(rounds)),
    )


def ratio_of(other: Step, own: Step) -> Ratio:
    """`other` over `own`, round by round: both ran in the same moments of the machine."""
    pairs = [a / b for a, b in zip(other.rounds, own.rounds, strict=True)]
    return Ratio(
        of_medians=other.median / own.median,
        median=statistics.median(pairs),
        spread=summarize(pairs, warm_up=0).spread,
        rounds=len(pairs),
        of_cpu=other.cpu_median / own.cpu_median if own.cpu_median else None,
    )


def times_eager(validation: Mapping[str, Mapping[str, Any]]) -> float | None:
    """The largest error of a first step in units of eager's own (at least 2 eps): at most 4 is as accurate as eager.

    `validation`: as in the JSON of a CandidateRecord. None where nothing was compared.
    """
    ratios = [v["worst_ratio"] for v in validation.values() if v["worst_ratio"] is not None]
    return max(ratios) * AS_EAGER_MULTIPLE if ratios else None


def geometric_mean(values: Sequence[float]) -> float | None:
    """None for no values."""
    return statistics.geometric_mean(values) if values else None
