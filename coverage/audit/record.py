# SPDX-License-Identifier: Apache-2.0
"""What an audit finds out about one model. Imports no torch, so that the command's own process stays light."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA = 2  # of the JSON; raised when a key changes its meaning or goes away


class Verdict(StrEnum):
    """Whether a model trains on TVM."""

    YES = "trains"
    WITH_FALLBACKS = "trains, partly in PyTorch"  # ops in ATen, or graph breaks with eager code between them
    ILL_CONDITIONED = "ill-conditioned"  # at every seed tried; eager moves as far, and in float64 the two agree
    NO = "does not train"
    DRY = "not run"  # --dry-run: what would run where


class Cause(StrEnum):
    """Why a model does not train: the type of the reason."""

    NONE = ""
    MODEL = "the model itself"  # it does not run in eager
    NO_REFERENCE = "no float64 reference"  # it does not run in float64, so nothing could be validated
    NOT_CAPTURED = "not captured"  # torch.compile hands nothing over
    REFUSED = "refused"  # no graph with native or library calls was compiled and run
    WRONG = "wrong numbers"  # gradients, buffers or losses are not right
    ERROR = "error"  # an exception in the compiled run
    CRASH = "crash"  # the process died
    TIMEOUT = "time limit"
    MEMORY = "memory limit"


@dataclass
class AuditRecord:
    """One model, audited. Every field is JSON-able; times in seconds."""

    model: str
    verdict: Verdict = Verdict.NO
    cause: Cause = Cause.NONE
    reason: str = ""  # one line, where it does not train
    schema: int = SCHEMA
    group: str = ""  # of the zoo; empty for a user's model
    tags: list[str] = field(default_factory=list)
    parameters: int = 0  # scalars
    ops: list[dict[str, Any]] = field(
        default_factory=list
    )  # OpUse: op, kind, verification, calls, reasons, lines of the model
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)  # Finding by blocker
    train: dict[str, Any] | None = None  # TrainRecord
    upstream: list[dict[str, Any]] | None = None  # UpstreamRecord of each graph; None where it was not asked for
    onnx: list[dict[str, Any]] | None = None  # OnnxRecord of each graph; None where it was not asked for
    seconds: dict[str, float] = field(default_factory=dict)  # by stage
    worker_output: str = ""  # the end of what the process printed, where it died

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
