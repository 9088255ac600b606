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
    WRONG = "wrong"  # it ran, and its numbers are not eager's
    FAILED = "failed"  # it did not run, or not on the backend


@dataclass
class Judgement:
    """A set of tensors of the first step (gradients, or buffers) judged by the float64 rule."""

    compared: int = 0
    failed: list[str] = field(default_factory=list)  # one line each: name, verdict, numbers
    missing: list[str] = field(default_factory=list)  # names; they are in `failed` too
    worst: dict[str, Any] | None = None  # the Comparison furthest from passing
    worst_ratio: float | None = None  # its error over what is allowed

    def fault(self) -> str:
        """The first that failed, and how many more; there must be one."""
        more = f" and {len(self.failed) - 1} more" if len(self.failed) > 1 else ""
        return f"{self.failed[0]}{more}"


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
    gradients: Judgement = field(default_factory=Judgement)
    buffers: Judgement = field(default_factory=Judgement)  # those that the first step changes
    losses_eager: list[float] = field(default_factory=list)
    losses_compiled: list[float] = field(default_factory=list)
    loss_difference: float | None = None  # largest relative difference of the two curves
    time_eager: Timing | None = None  # of a step; `first` is the first step
    time_compiled: Timing | None = None  # `first` is the first step, with everything that is compiled in it

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
