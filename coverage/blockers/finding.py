# SPDX-License-Identifier: Apache-2.0
"""What an analysis of one blocker comes to. Imports no torch: a command that only shows findings stays light."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Blocker(StrEnum):
    """The five reasons for which TVM is said not to train PyTorch models."""

    OPERATORS = "operators"
    DYNAMIC_SHAPES = "dynamic shapes"
    API_STABILITY = "API stability"
    IN_PLACE = "in-place and optimizer state"
    MAINTENANCE = "maintenance"


class Level(StrEnum):
    """How much of a blocker is left, from the least to the most."""

    CLEAR = "clear"
    WORKED_AROUND = "worked around"  # training goes on, at a price that the numbers say
    BLOCKS = "blocks"
    UNKNOWN = "not measured"  # and the headline says why


@dataclass(frozen=True)
class Evidence:
    """One place or fact that a finding rests on."""

    what: str
    where: str = ""  # `file:line (code)` in the user's model, or a command


@dataclass
class Finding:
    """A blocker, measured on one model (or on the installation)."""

    blocker: Blocker
    level: Level
    headline: str  # one sentence with the figures that decide
    numbers: dict[str, Any] = field(default_factory=dict)
    evidence: list[Evidence] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
