# SPDX-License-Identifier: Apache-2.0
"""The verification status of each op: what the sweeps found, as a table that is stored with the package."""

from __future__ import annotations

import functools
import json
from enum import StrEnum
from pathlib import Path

TABLE = Path(__file__).with_suffix(".json")  # written by `python -m relaxgrad.reports.ops_pages` from the sweeps


class Verification(StrEnum):
    """The verification status of one output of an op."""

    VERIFIED = "verified"
    WRONG = "wrong"
    UNTESTED = "untested"


@functools.cache
def verification_of_ops(path: Path = TABLE) -> dict[str, Verification]:
    """Status by overload name; an op that no sweep has seen is not in it."""
    return {op: Verification(status) for op, status in json.loads(path.read_text())["ops"].items()}
