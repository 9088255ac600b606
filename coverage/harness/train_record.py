# SPDX-License-Identifier: Apache-2.0
"""What `relaxgrad train` finds out about one model. Imports no torch, so that the command's own process stays light."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from .timing import Timing

SCHEMA = 1  # of the JSON; raised when a key changes its meaning or goes away
#: How the reason begins of a model that does not run in float64.
NO_REFERENCE = "no float64 reference"


class Status(StrEnum):
    """Whether a model trained."""

    TRAINED = "trained"
    ILL_CONDITIONED = "ill-conditioned"  # not right, and eager itself moves as far; see conditioning.py
    WRONG = "wrong"  # it ran, and its numbers are not right
    FAILED = "failed"  # it did not run, or not on the backend


@dataclass
class Validation:
    """A set of tensors of the first step (gradients, or buffers) validated by the float64 rule."""

    compared: int = 0
    failed: list[str] = field(default_factory=list)  # what is not right, one line each: name, verdict, numbers
    missing: list[str] = field(default_factory=list)  # names; they are in `failed` too
    less_accurate: list[str] = field(default_factory=list)  # what is right and not as accurate as eager, likewise
    zeros: list[str] = field(default_factory=list)  # names: exactly zero where eager has None, as AOTAutograd makes it
    worst: dict[str, Any] | None = None  # the Comparison furthest from passing
    worst_ratio: float | None = None  # its error over that of what is as accurate as eager

    def fault(self) -> str:
        """The first that failed, and how many more; there must be one."""
        more = f" and {len(self.failed) - 1} more" if len(self.failed) > 1 else ""
        return f"{self.failed[0]}{more}"


@dataclass
class Conditioning:
    """What eager itself does where a result was not right; see conditioning.py. Errors as those of a Comparison."""

    seed: int = 0
    tensors: int = 0  # of the first step that were not right
    error: float = 0.0  # the largest of them
    variants: dict[str, float] = field(
        default_factory=dict
    )  # variant of eager -> its largest error on the same tensors
    covered: bool = False  # whether a variant goes as far on each of them
    beyond: list[str] = field(default_factory=list)  # those that none goes as far on, one line each
    float64: float | None = None  # distance of the compiled float64 step from eager's; None where it is not known
    float64_reason: str = ""  # why it is not known

    def told(self) -> str:
        """Both figures in one line."""
        furthest = max(self.variants, key=lambda name: self.variants[name], default="")
        eager = f"eager {furthest} moves by {self.variants[furthest]:.1e}" if furthest else "eager has no variant"
        wide = self.float64_reason if self.float64 is None else f"compiled in float64 it agrees to {self.float64:.1e}"
        return f"seed {self.seed}: {self.tensors} tensors off by up to {self.error:.1e}; {eager}; {wide}"


@dataclass
class TrainRecord:
    """How one model trained. Every field is JSON-able; times in seconds."""

    model: str
    status: Status = Status.FAILED
    reason: str = ""  # one line, for all but `trained`
    schema: int = SCHEMA
    backend: str = ""
    target: str = ""
    fallback: str = ""
    seed: int = 0
    steps: int = 0
    protocol: str = "forward+backward+optimizer, AdamW, interleaved with eager step by step"
    threads: int = 0
    parameters: int = 0  # scalars
    graphs: dict[str, int] = field(default_factory=dict)  # forward, backward, inference -> graphs compiled
    graph_details: list[dict[str, Any]] = field(default_factory=list)  # one per graph; see `_graph_detail`
    graph_breaks: dict[str, int] = field(default_factory=dict)  # first line of Dynamo's reason -> count
    recompiles: int = 0  # graphs that Dynamo made after the first step
    calls: dict[str, int] = field(default_factory=dict)  # nodes of all graphs by kind
    reasons: list[str] = field(default_factory=list)  # one for each op that fell back or was refused
    gradients: Validation = field(default_factory=Validation)
    buffers: Validation = field(default_factory=Validation)  # those that the first step changes
    losses_eager: list[float] = field(default_factory=list)
    losses_compiled: list[float] = field(default_factory=list)
    loss_difference: float | None = None  # largest relative difference of the two curves
    loss_allowed: float | None = None  # what eager's own variants show, and at least the floor
    conditioning: list[Conditioning] = field(default_factory=list)  # one a seed at which a tensor was not right
    time_eager: Timing | None = None  # of a step; `first` is the first step
    time_compiled: Timing | None = None  # `first` is the first step, with everything that is compiled in it

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
