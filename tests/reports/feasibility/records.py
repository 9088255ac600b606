# SPDX-License-Identifier: Apache-2.0
"""Records as an audit and a benchmark leave them, small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relaxgrad.coverage.audit.auditor import AuditOptions
from relaxgrad.coverage.audit.many import FILE, head_of
from relaxgrad.coverage.audit.record import AuditRecord, Cause, Verdict
from relaxgrad.coverage.blockers.finding import Blocker, Evidence, Finding, Level
from relaxgrad.coverage.sweeps.records import Records
from relaxgrad.reports.feasibility.collect import gather
from relaxgrad.reports.feasibility.schema import Report

LINE = "model.py:7 (return torch.linalg.qr(x)[1])"
TRAIN = {
    "gradients": {"compared": 4, "failed": []},
    "graphs": {"forward": 1, "backward": 1, "inference": 0},
    "graph_breaks": {},
}


def op(
    name: str, kind: str, calls: int, sources: tuple[str, ...] = (), reasons: tuple[str, ...] = ()
) -> dict[str, Any]:
    found = {"op": name, "kind": kind, "verification": "verified", "calls": calls}
    return found | {"reasons": list(reasons), "sources": list(sources)}


def operators(level: Level, headline: str, calls: dict[str, int], *evidence: Evidence) -> dict[str, Any]:
    return Finding(Blocker.OPERATORS, level, headline, {"calls_by_kind": calls}, list(evidence)).to_json()


def trains(name: str = "mlp") -> AuditRecord:
    record = AuditRecord(name, Verdict.YES, group="tiny", parameters=1200, train=TRAIN)
    record.findings = {"operators": operators(Level.CLEAR, "all 8 calls are native", {"native": 6, "library": 2})}
    record.ops = [op("aten.mm.default", "library", 2), op("aten.add.Tensor", "native", 6)]
    record.upstream = [{"outcome": "right"}, {"outcome": "wrong"}]
    return record


def falls_back(name: str = "qr") -> AuditRecord:
    record = AuditRecord(name, Verdict.WITH_FALLBACKS, group="text", parameters=10, train=TRAIN)
    evidence = Evidence("aten.linalg_qr.default: fallback", LINE)
    calls = {"native": 1, "fallback": 1}
    record.findings = {"operators": operators(Level.WORKED_AROUND, "1 of 2 calls runs in ATen", calls, evidence)}
    record.ops = [op("aten.linalg_qr.default", "fallback", 1, (LINE,), ("no converter",))]
    return record


def crashes(name: str = "gpt") -> AuditRecord:
    return AuditRecord(name, cause=Cause.CRASH, reason="killed by SIGSEGV", group="text")


def timed(name: str, ratio: float) -> dict[str, Any]:
    """A benchmark's record: eager's step takes `ratio` times as long."""

    def candidate(step: float, first: float) -> dict[str, Any]:
        return {
            "status": "timed", "reason": "", "step": {"median": step, "spread": step / 50},
            "cold": {"first": first, "backend": first / 3}, "memory": 10**7,
            "validation": {"loss": {"worst_ratio": 0.25}},
        }  # fmt: skip

    return {
        "model": name,
        "inputs": ["x 4x3"],
        "candidates": {
            "relaxgrad": candidate(0.01, 2.0),
            "inductor": candidate(0.011, 8.0),
            "eager": candidate(0.01 * ratio, 0.1),
        },
        "ratios": {"inductor": {"median": 1.1}, "eager": {"median": ratio}},
    }


def report(folder: Path, audits: list[AuditRecord], bench: list[dict[str, Any]]) -> Report:
    folder.mkdir(parents=True, exist_ok=True)
    records = Records(folder / FILE, json.loads(json.dumps(head_of(AuditOptions()))), resume=False)
    for record in audits:
        records.add(record.to_json())
    records.close()
    return gather(folder, [a.model for a in audits], bench, None, ["relaxgrad report mlp qr gpt -o out"])
