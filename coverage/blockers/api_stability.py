# SPDX-License-Identifier: Apache-2.0
"""Blocker 3, API stability: every private torch name that the bridge stands on, exercised; and a matrix of versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .finding import Blocker, Evidence, Finding, Level

MATRIX = Path(__file__).parent / "api_matrix.json"  # written by `python -m relaxgrad.coverage.versions`


def measure() -> Finding:
    """Probes the installed torch (about three seconds), and reads the stored matrix of other versions."""
    import torch

    from relaxgrad.bridge import torch_api

    probes = torch_api.probe_all()
    failed = [p for p in probes if not p.ok]
    numbers: dict[str, Any] = {
        "torch": torch.__version__,
        "private_names": len(probes),
        "probes_failed": [p.name for p in failed],
        "files_that_import_them": 1,  # bridge/torch_api.py; tests/test_layering.py holds it
        "matrix": read_matrix(),
    }
    evidence = [Evidence(f"{p.name}, for {p.used_for}: {p.detail}") for p in failed]
    if failed:
        headline = f"{len(failed)} of {len(probes)} private names of torch {torch.__version__} changed or are gone"
        return Finding(Blocker.API_STABILITY, Level.BLOCKS, headline, numbers, evidence)
    tested = [row for row in numbers["matrix"] if row.get("probes")]
    working = [row["torch"] for row in tested if not row["probes_failed"] and not row.get("tests_failed")]
    headline = f"the bridge stands on {len(probes)} private names, in one file; all work in torch {torch.__version__}"
    if tested:
        headline += f"; versions tested: {', '.join(row['torch'] for row in tested)}, without a fault: "
        headline += ", ".join(working) or "none"
    return Finding(Blocker.API_STABILITY, Level.WORKED_AROUND, headline, numbers, evidence)


def read_matrix(path: Path = MATRIX) -> list[dict[str, Any]]:
    """The stored rows: one for each torch version, as `python -m relaxgrad.coverage.versions` measured it."""
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text())["versions"]
    return rows
