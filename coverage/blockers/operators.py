# SPDX-License-Identifier: Apache-2.0
"""Blocker 1, operator coverage: what each node of a model's training graphs runs as, and where time goes by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.schemas import NodeRecord

from ..verification import Verification
from .finding import Blocker, Evidence, Finding, Level

SHOWN = 20  # places in the evidence; `numbers` has the count of all


@dataclass(frozen=True)
class OpUse:
    """One op of a model, in one way that it runs."""

    op: str
    kind: Kind
    verification: Verification
    calls: int
    reasons: list[str] = field(default_factory=list)  # kinds of the typed reasons, where it fell back
    sources: list[str] = field(default_factory=list)  # lines of the model, most used first

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def op_uses(nodes: Iterable[NodeRecord], verification: dict[str, Verification]) -> list[OpUse]:
    """Nodes gathered by op and kind, unsupported and fallback first, then by calls. `verification`: by op."""
    groups: dict[tuple[str, Kind], list[NodeRecord]] = {}
    for node in nodes:
        groups.setdefault((node.op, node.kind), []).append(node)
    order = (Kind.UNSUPPORTED, Kind.FALLBACK, Kind.LIBRARY, Kind.NATIVE, Kind.METADATA)
    uses = []
    for (op, kind), members in groups.items():
        places = Counter(str(n.source) for n in members if n.source is not None)
        reasons = sorted(
            {str(n.reason.kind) + (f": {n.reason.detail}" if n.reason.detail else "") for n in members if n.reason}
        )
        uses.append(
            OpUse(
                op,
                kind,
                verification.get(op, Verification.UNTESTED),
                len(members),
                reasons,
                [p for p, _ in places.most_common()],
            )
        )
    return sorted(uses, key=lambda u: (order.index(u.kind), -u.calls, u.op))


def analyse(
    uses: Sequence[OpUse],
    seconds: dict[Kind, float] | None = None,
    step_seconds: float | None = None,
) -> Finding:
    """The finding on a model's ops. `seconds`: measured time in kernels by kind, a step; `step_seconds`: of it all."""
    calls: Counter[Kind] = Counter()
    for use in uses:
        calls[use.kind] += use.calls
    total = sum(calls.values())
    numbers: dict[str, Any] = {
        "ops": len({u.op for u in uses}),
        "calls": total,
        "calls_by_kind": {kind.value: calls[kind] for kind in Kind},
        "untested_ops": sorted(
            {u.op for u in uses if u.verification is Verification.UNTESTED and u.kind is not Kind.METADATA}
        ),
        "wrong_ops": sorted({u.op for u in uses if u.verification is Verification.WRONG}),
    }
    if seconds is not None:
        measured = sum(seconds.values())
        numbers["seconds_by_kind"] = {kind.value: seconds.get(kind, 0.0) for kind in Kind}
        numbers["share_by_kind"] = {k.value: seconds.get(k, 0.0) / measured if measured else 0.0 for k in Kind}
        numbers["step_seconds"] = step_seconds
    evidence = [
        Evidence(f"{u.op}: {u.kind}" + (f" ({'; '.join(u.reasons)})" if u.reasons else ""), place)
        for u in uses
        if u.kind in (Kind.UNSUPPORTED, Kind.FALLBACK)
        for place in (u.sources or [""])
    ]
    numbers["places"] = len(evidence)
    return Finding(Blocker.OPERATORS, *_verdict(calls, total, numbers, seconds), numbers, evidence[:SHOWN])


def _verdict(
    calls: Counter[Kind], total: int, numbers: dict[str, Any], seconds: dict[Kind, float] | None
) -> tuple[Level, str]:
    if calls[Kind.UNSUPPORTED]:
        return Level.BLOCKS, f"{calls[Kind.UNSUPPORTED]} of {total} calls are refused"
    if numbers["wrong_ops"]:
        return Level.BLOCKS, f"ops that a sweep found wrong: {', '.join(numbers['wrong_ops'])}"
    if not total:
        return Level.BLOCKS, "no graph was compiled: there is no op to run"
    if calls[Kind.FALLBACK]:
        share = f", {numbers['share_by_kind']['fallback']:.0%} of the time in kernels" if seconds is not None else ""
        return Level.WORKED_AROUND, f"{calls[Kind.FALLBACK]} of {total} calls run in ATen for want of a lowering{share}"
    return Level.CLEAR, f"all {total} calls of {numbers['ops']} ops are native, library or metadata"
