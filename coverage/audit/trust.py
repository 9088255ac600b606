"""How far each op is trusted: what the sweeps found, as a table that is stored with the package."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from relaxgrad.bridge.kinds import Trust

TABLE = Path(__file__).parent / "trust.json"  # written by `python -m relaxgrad.reports.ops_pages` from the sweeps


@functools.cache
def trust_of_ops(path: Path = TABLE) -> dict[str, Trust]:
    """Trust by overload name; an op that no sweep has seen is not in it."""
    return {op: Trust(trust) for op, trust in json.loads(path.read_text())["ops"].items()}
