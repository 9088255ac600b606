# SPDX-License-Identifier: Apache-2.0
"""What changed between two reports, the worse things first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relaxgrad.benchmarks.names import RELAXGRAD

from .schema import Answer, Finding, Model, Report

#: A step's time that counts as changed: the noise of two runs of one program on a quiet machine is below it.
NOISE = 0.1
_RANK = (Answer.YES, Answer.PARTLY, Answer.UNDECIDED, Answer.NO)
_LEVELS = ("clear", "worked around", "blocks")


@dataclass(frozen=True)
class Change:
    """One difference. `worse`: None where it is neither."""

    model: str  # empty for what is of all
    what: str
    worse: bool | None = None

    def __str__(self) -> str:
        mark = {True: "worse", False: "better", None: "other"}[self.worse]
        return f"{mark}: {self.model}: {self.what}" if self.model else f"{mark}: {self.what}"


def changes(old: Report, new: Report) -> list[Change]:
    """Every difference between two reports, the worse ones first."""
    found = list(_surroundings(old, new))
    before, after = ({model.name: model for model in report.models} for report in (old, new))
    for name in before.keys() - after.keys():
        found.append(Change(name, "is not in the new report"))
    for name in after.keys() - before.keys():
        found.append(Change(name, f"is new: {after[name].answer}"))
    for name in (name for name in after if name in before):
        found += _model(before[name], after[name])
    order = {True: 0, False: 1, None: 2}
    return sorted(found, key=lambda change: (order[change.worse], change.model))


def _surroundings(old: Report, new: Report) -> Iterator[Change]:
    for name in sorted(old.versions.keys() | new.versions.keys()):
        if old.versions.get(name) != new.versions.get(name):
            yield Change("", f"{name} {old.versions.get(name)} became {new.versions.get(name)}")
    for key in sorted(old.machine.keys() | new.machine.keys()):
        if key not in ("torch", "tvm") and old.machine.get(key) != new.machine.get(key):
            yield Change("", f"the machine's {key}: {old.machine.get(key)} became {new.machine.get(key)}")
    yield from _findings("", old.installation, new.installation)


def _model(old: Model, new: Model) -> Iterator[Change]:
    name = new.name
    if old.answer != new.answer:
        worse = _RANK.index(new.answer) > _RANK.index(old.answer)
        cause = new.reason or "; ".join(m for m in new.missing if m not in old.missing)
        yield Change(name, f"{old.answer} became {new.answer}" + (f": {cause}" if cause else ""), worse)
    elif new.reason != old.reason:
        yield Change(name, f"another reason: {new.reason}")
    if (old.gradients_right, old.gradients) != (new.gradients_right, new.gradients):
        wrong = old.gradients - old.gradients_right < new.gradients - new.gradients_right
        worse = wrong or new.gradients_right < old.gradients_right
        told = (
            f"{old.gradients_right} of {old.gradients} gradients right became {new.gradients_right} of {new.gradients}"
        )
        yield Change(name, told, worse)
    yield from _findings(name, old.findings, new.findings)
    if old.ops and new.ops:  # a model that crashed has none: nothing is known of them
        yield from _ops(old, new)
    yield from _speed(old, new)


def _findings(model: str, old: Sequence[Finding], new: Sequence[Finding]) -> Iterator[Change]:
    levels = {f.blocker: f for f in old}
    for finding in new:
        before = levels.get(finding.blocker)
        if before is None or before.level == finding.level:
            continue
        told = f"{finding.blocker}: {before.level} became {finding.level}: {finding.headline}"
        known = before.level in _LEVELS and finding.level in _LEVELS
        yield Change(model, told, _LEVELS.index(finding.level) > _LEVELS.index(before.level) if known else None)


def _ops(old: Model, new: Model) -> Iterator[Change]:
    fell = {op.op: op for op in new.ops if op.kind in ("fallback", "unsupported")}
    before = {op.op for op in old.ops if op.kind in ("fallback", "unsupported")}
    for name in sorted(fell.keys() - before):
        op = fell[name]
        where = f" at {op.sources[0]}" if op.sources else ""
        yield Change(new.name, f"{name} runs as {op.kind}{where} ({'; '.join(op.reasons)})", True)
    for name in sorted(before - fell.keys()):
        yield Change(new.name, f"{name} falls back no more", False)


def _speed(old: Model, new: Model) -> Iterator[Change]:
    """Ratios to the other candidates, which a faster or slower machine leaves as they are."""
    for other in (name for name in new.ratios if name in old.ratios):
        change = new.ratios[other] / old.ratios[other]
        if abs(change - 1) > NOISE:
            told = f"{old.ratios[other]:.2f} times {other}'s speed became {new.ratios[other]:.2f}"
            yield Change(new.name, told, change < 1)
    own = [model.candidates.get(RELAXGRAD) for model in (old, new)]
    if all(c is not None for c in own) and own[0].status != own[1].status:  # type: ignore[union-attr]  # just asked
        told = f"the timed step: {own[0].status} became {own[1].status}: {own[1].reason}"  # type: ignore[union-attr]
        yield Change(new.name, told, own[1].status != "timed")  # type: ignore[union-attr]
