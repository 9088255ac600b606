"""report.json: its versioned schema. Validated when it is written and when it is read.

Times are seconds, memory bytes. SCHEMA is raised when a key changes its meaning or goes away.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from relaxgrad.bridge.errors import UserError

SCHEMA = 1


class Answer(StrEnum):
    """Can it train on TVM?"""

    YES = "yes"
    PARTLY = "yes, partly in PyTorch"  # ops in ATen, or graph breaks
    NO = "no"

    def said(self) -> str:
        """At the start of a sentence."""
        return f"{self[0].upper()}{self[1:]}"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Place(_Strict):
    """One fact that a finding rests on."""

    what: str
    where: str = ""  # `file:line (code)` in the model, or a command


class Finding(_Strict):
    """A blocker, measured."""

    blocker: str
    level: Literal["clear", "worked around", "blocks", "not measured"]
    headline: str
    evidence: list[Place] = []


class Op(_Strict):
    """One op of a model, in one way that it runs."""

    op: str
    kind: Literal["native", "library", "fallback", "metadata", "unsupported"]
    trust: Literal["verified", "wrong", "untested"]
    calls: int
    reasons: list[str] = []
    sources: list[str] = []  # lines of the model


class Contender(_Strict):
    """A backend's training step."""

    status: str
    reason: str = ""
    step: float | None = None  # median
    spread: float | None = None  # interquartile range
    first: float | None = None  # the first step in a fresh process, caches off
    backend: float | None = None  # of it, the backend's own share
    memory: int | None = None  # highest of the steps after the first, over what was there before


class Stock(_Strict):
    """TVM's own importer on the model's graphs."""

    graphs: int
    right: int
    outcomes: dict[str, int]


class Model(_Strict):
    """One model."""

    name: str
    group: str = ""
    answer: Answer
    reason: str = ""  # where the answer is no
    missing: list[str] = []  # what would have to be there for a plain yes
    parameters: int
    graphs: int
    breaks: int
    calls: dict[str, int]  # of ops by kind
    gradients_right: int
    gradients: int
    findings: list[Finding]
    ops: list[Op]
    stock: Stock | None = None
    contenders: dict[str, Contender] = {}
    ratios: dict[str, float] = {}  # other contender -> its step over relaxgrad's


class Report(_Strict):
    """The whole of report.json."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    created: str  # ISO 8601
    answer: Answer
    sentence: str  # the answer, in words with figures
    commands: list[str]  # that make the report anew
    protocol: str = ""  # of the benchmark, in words; empty where none was run
    versions: dict[str, str | None]
    machine: dict[str, Any]
    installation: list[Finding]
    models: list[Model]

    def text(self) -> str:
        """As JSON."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def read(path: Path) -> Report:
    """The report in a file, or in a folder's report.json. Raises UserError for what is no report of this schema."""
    file = path / "report.json" if path.is_dir() else path
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"cannot read {file}: {error.strerror}; `relaxgrad report MODEL... -o DIR` makes one"
        ) from error
    except ValueError as error:
        raise UserError(f"{file} is no JSON: {error}") from error
    try:
        return Report.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{file} is no report of schema {SCHEMA}: {where}: {first['msg']}") from error
