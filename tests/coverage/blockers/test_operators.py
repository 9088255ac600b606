# SPDX-License-Identifier: Apache-2.0
"""Blocker 1: ops gathered with their lines and reasons, and the verdict that follows from their kinds."""

from __future__ import annotations

from relaxgrad.bridge.kinds import Kind, Reason, ReasonKind, SourceLine
from relaxgrad.bridge.schemas import NodeRecord
from relaxgrad.coverage.blockers.finding import Level
from relaxgrad.coverage.blockers.operators import analyse, op_uses
from relaxgrad.coverage.verification import Verification

LINE = SourceLine("model.py", 7, "x.qr()")
REASON = Reason(ReasonKind.NO_CONVERTER, "aten.qr", "qr")
NODES = [
    NodeRecord("n", "aten.add", Kind.NATIVE, SourceLine("model.py", 3)),
    NodeRecord("n", "aten.add", Kind.NATIVE, SourceLine("model.py", 3)),
    NodeRecord("n", "aten.add", Kind.NATIVE, None),
    NodeRecord("n", "aten.mm", Kind.LIBRARY, SourceLine("model.py", 5)),
    NodeRecord("n", "aten.view", Kind.METADATA, None),
    NodeRecord("n", "aten.qr", Kind.FALLBACK, LINE, REASON),
]
VERIFICATION = {"aten.add": Verification.VERIFIED, "aten.mm": Verification.VERIFIED}


def test_what_falls_back_comes_first_with_reason_and_line() -> None:
    uses = op_uses(NODES, VERIFICATION)
    assert [(u.op, u.calls) for u in uses] == [("aten.qr", 1), ("aten.mm", 1), ("aten.add", 3), ("aten.view", 1)]
    assert uses[0].reasons == ["no converter"]
    assert uses[0].sources == ["model.py:7 (x.qr())"]
    assert uses[2].sources == ["model.py:3"]
    assert (uses[0].verification, uses[2].verification) == (Verification.UNTESTED, Verification.VERIFIED)


def test_the_finding_counts_calls_and_time() -> None:
    finding = analyse(op_uses(NODES, VERIFICATION), {Kind.NATIVE: 0.001, Kind.FALLBACK: 0.003}, 0.01)
    assert finding.level is Level.WORKED_AROUND
    assert finding.headline == "1 of 6 calls run in ATen for want of a lowering, 75% of the time in kernels"
    assert finding.numbers["calls_by_kind"] == {
        "native": 3, "library": 1, "fallback": 1, "metadata": 1, "unsupported": 0,
    }  # fmt: skip
    assert finding.numbers["untested_ops"] == ["aten.qr"]
    assert [(e.what, e.where) for e in finding.evidence] == [("aten.qr: fallback (no converter)", str(LINE))]


def test_verdicts_go_from_clear_to_blocks() -> None:
    clear = analyse(op_uses(NODES[:5], VERIFICATION))
    assert (clear.level, clear.headline) == (Level.CLEAR, "all 5 calls of 3 ops are native, library or metadata")
    assert analyse(op_uses(NODES[:5], VERIFICATION | {"aten.mm": Verification.WRONG})).level is Level.BLOCKS
    refused = [*NODES, NodeRecord("n", "aten.sort", Kind.UNSUPPORTED, None)]
    assert analyse(op_uses(refused, VERIFICATION)).level is Level.BLOCKS
    assert analyse([]).level is Level.BLOCKS
