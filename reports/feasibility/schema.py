# SPDX-License-Identifier: Apache-2.0
"""report.json: its versioned schema. Validated when it is written and when it is read.

docs/report-schema.md is made of these classes (`python -m relaxgrad.reports.schema_page`). Note [Versions] is its rule.

Note [Versions]
A reader takes files of its own schema and no others, and refuses a key that it does not know. So SCHEMA is raised with
every change of the keys or of what one means, additions included. A file of another schema is not translated: a report
is made anew in minutes, from audits that are kept beside it.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from relaxgrad.bridge.errors import UserError

SCHEMA = 3


class Answer(StrEnum):
    """Can it train on TVM?"""

    YES = "yes"
    PARTLY = "yes, partly in PyTorch"  # ops in ATen, or graph breaks
    UNDECIDED = "ill-conditioned"  # at every seed tried: eager moves as far, and float64 agrees
    SOME = "for some models"  # of a report, where others do not train
    NO = "no"

    def said(self) -> str:
        """At the start of a sentence."""
        return f"{self[0].upper()}{self[1:]}"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Place(_Strict):
    """One fact that a finding rests on."""

    what: str = Field(description="The fact, in words.")
    where: str = Field("", description="`file:line (code)` in the model, or a command that shows it.")


class Finding(_Strict):
    """A blocker, measured."""

    blocker: str = Field(
        description="`operators`, `dynamic shapes`, `API stability`, `in-place and optimizer state` or `maintenance`."
    )
    level: Literal["clear", "worked around", "blocks", "not measured"] = Field(description="What is left of it.")
    headline: str = Field(description="One sentence with the figures that decide.")
    evidence: list[Place] = Field([], description="What the level rests on.")


class Op(_Strict):
    """One op of a model, in one way that it runs."""

    op: str = Field(description="Overload, as `aten.mm.default`.")
    kind: Literal["native", "library", "fallback", "metadata", "unsupported"] = Field(
        description="How it runs: TVM's kernel, a tuned kernel on purpose, ATen for want of a lowering, no kernel, not "
        "at all."
    )
    verification: Literal["verified", "wrong", "untested"] = Field(
        description="What the sweeps of operators say of the overload, validated against float64."
    )
    calls: int = Field(description="Nodes of the model's graphs.")
    reasons: list[str] = Field([], description="Why it falls back.")
    sources: list[str] = Field([], description="Lines of the model that call it, as `file:line (code)`.")


class Candidate(_Strict):
    """A backend's training step."""

    status: str = Field(
        description="`timed`; `wrong`: its first step is not right, and eager is steadier; `failed`: it did not run."
    )
    times_eager: float | None = Field(
        None, description="Largest error of the first step in units of eager's: at most 4 is as accurate as eager."
    )
    conditioning: str = Field("", description="Where a first step was not right and eager is no steadier: the figures.")
    reason: str = Field("", description="In words, where it was not timed.")
    step: float | None = Field(None, description="Seconds a step, median of the rounds.")
    spread: float | None = Field(None, description="Seconds, interquartile range of the rounds.")
    first: float | None = Field(None, description="Seconds of the first step in a fresh process, caches off.")
    backend: float | None = Field(None, description="Seconds of the first step that are the backend's own.")
    memory: int | None = Field(
        None, description="Bytes of resident memory at the highest of the steps after the first, over those before it."
    )


class Upstream(_Strict):
    """TVM's own importer on the model's graphs."""

    graphs: int = Field(description="Graphs that it was given.")
    right: int = Field(description="Graphs whose outputs are right by the float64 rule.")
    outcomes: dict[str, int] = Field(description="Graphs by outcome: `right`, `wrong`, `not mapped`, `crash`, ...")


class Model(_Strict):
    """One model."""

    name: str = Field(description="Zoo name, `path/to/file.py:factory` or `package.module:factory`.")
    group: str = Field("", description="Group of the zoo; empty for a user's own model.")
    answer: Answer = Field(
        description="Whether it trains on TVM: `yes`, `yes, partly in PyTorch`, `ill-conditioned` or `no`."
    )
    reason: str = Field("", description="Cause and detail, where the answer is no.")
    missing: list[str] = Field([], description="What would have to be there for a plain yes.")
    parameters: int = Field(description="Scalars, of all parameters together.")
    graphs: int = Field(description="Graphs that were compiled, forward and backward.")
    breaks: int = Field(description="Graph breaks.")
    calls: dict[str, int] = Field(description="Nodes of the graphs by the kind of Op.")
    gradients_right: int = Field(description="Gradients that are right by the float64 rule.")
    gradients: int = Field(description="Gradients that were compared.")
    conditioning: list[str] = Field(
        [], description="For each seed at which eager is no steadier than the compiled step: the figures of both."
    )
    inputs: list[str] = Field([], description="Shapes of the inputs that were timed; empty where none were.")
    findings: list[Finding] = Field(description="The blockers of this model.")
    ops: list[Op] = Field(description="Every op, in each way that it runs.")
    upstream: Upstream | None = Field(None, description="Absent where it was not asked for.")
    candidates: dict[str, Candidate] = Field({}, description="By name: `relaxgrad`, `inductor`, `eager`, ...")
    ratios: dict[str, float] = Field(
        {}, description="A baseline's step over relaxgrad's, median of rounds: above 1 relaxgrad is faster."
    )


class Report(_Strict):
    """The whole of report.json."""

    schema_: Literal[3] = Field(default=3, alias="schema", description="Version of this schema.")
    created: str = Field(description="ISO 8601, UTC.")
    answer: Answer = Field(description="For all models together.")
    sentence: str = Field(description="The answer in words, with figures.")
    commands: list[str] = Field(description="What makes the report anew.")
    protocol: str = Field("", description="Of the benchmark, in words; empty where none was run.")
    versions: dict[str, str | None] = Field(description="By package; null where it is not installed.")
    machine: dict[str, Any] = Field(
        description="What was measured on: `cpu`, `cores`, `features`, `memory` (GiB), `kernel`, `torch`, `tvm`."
    )
    installation: list[Finding] = Field(description="The blockers that are the same for every model.")
    models: list[Model] = Field(description="In the order in which they were audited.")

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
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is no JSON: {error}") from error
    found = data.get("schema") if isinstance(data, dict) else None
    if found != SCHEMA:
        what = f"is of schema {found!r}" if found is not None else "is no report: it has no schema"
        raise UserError(
            f"{file} {what}; this relaxgrad reads schema {SCHEMA}, which `relaxgrad report MODEL... -o DIR` writes"
        )
    try:
        return Report.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{file} is no report of schema {SCHEMA}: {where}: {first['msg']}") from error
