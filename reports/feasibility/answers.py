# SPDX-License-Identifier: Apache-2.0
"""From the records of an audit and of a benchmark to answers: yes, no, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from relaxgrad.benchmarks.names import INDUCTOR, RELAXGRAD
from relaxgrad.benchmarks.record import Status, geometric_mean, times_eager
from relaxgrad.coverage.harness.train_record import Conditioning

from .schema import Answer, Candidate, Finding, Model, Op, Upstream

_ANSWERS = {
    "trains": Answer.YES,
    "trains, partly in PyTorch": Answer.PARTLY,
    "ill-conditioned": Answer.UNDECIDED,
}
_SOLVED = ("clear", "not measured")


def model_of(audit: Mapping[str, Any], bench: Mapping[str, Any] | None) -> Model:
    """One model from its record of an audit, and that of a benchmark where there is one."""
    train = audit["train"] or {}
    gradients = train.get("gradients", {"compared": 0, "failed": []})
    findings = [_finding(f) for f in audit["findings"].values()]
    numbers = audit["findings"].get("operators", {}).get("numbers", {})
    answer = _ANSWERS.get(audit["verdict"], Answer.NO)
    no = answer in (Answer.NO, Answer.UNDECIDED)
    reason = f"{audit['cause']}: {audit['reason']}".removeprefix(": ") if no else ""
    candidates = _candidates(bench)
    own = candidates.get(RELAXGRAD)
    if own is not None and own.status == Status.WRONG and answer is not Answer.NO:
        answer, reason = Answer.NO, f"wrong numbers in the benchmark: {own.reason}"
    return Model(
        name=audit["model"],
        group=audit["group"],
        answer=answer,
        reason=reason,
        missing=[f"{f.blocker}: {f.headline}" for f in findings if f.level not in _SOLVED],
        parameters=audit["parameters"],
        graphs=sum(train.get("graphs", {}).values()),
        breaks=sum(train.get("graph_breaks", {}).values()),
        calls=numbers.get("calls_by_kind", {}),
        gradients_right=gradients["compared"] - len(gradients["failed"]),
        gradients=gradients["compared"],
        conditioning=[Conditioning(**one).told() for one in train.get("conditioning", ())],
        inputs=list(bench.get("inputs", ())) if bench else [],
        findings=findings,
        ops=[Op(**op) for op in audit["ops"]],
        upstream=_upstream(audit["upstream"]),
        candidates=candidates,
        ratios={name: ratio["median"] for name, ratio in (bench["ratios"] if bench else {}).items()},
    )


def _finding(found: Mapping[str, Any]) -> Finding:
    return Finding(**{key: found[key] for key in ("blocker", "level", "headline", "evidence")})


def findings_of(found: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """What an audit found out about the installation."""
    return [_finding(f) for f in found]


def _upstream(records: Sequence[Mapping[str, Any]] | None) -> Upstream | None:
    if records is None:
        return None
    outcomes = Counter(record["outcome"] for record in records)
    return Upstream(graphs=len(records), right=outcomes["right"], outcomes=dict(outcomes))


def _candidates(bench: Mapping[str, Any] | None) -> dict[str, Candidate]:
    if bench is not None and bench.get("reason"):  # of the whole model: nothing was timed
        nothing: dict[str, Any] = dict.fromkeys(("times_eager", "step", "spread", "first", "backend", "memory"))
        return {RELAXGRAD: Candidate(status=Status.FAILED, reason=bench["reason"], conditioning="", **nothing)}
    found = {}
    for name, record in (bench["candidates"] if bench else {}).items():
        cold = (record["cold"] if record["status"] != Status.WRONG else None) or {}
        step = record["step"] or {}
        found[name] = Candidate(
            status=record["status"],
            reason=record["reason"],
            times_eager=times_eager(record["validation"]),
            conditioning=record.get("conditioning", ""),
            step=step.get("median"),
            spread=step.get("spread"),
            first=cold.get("first"),
            backend=cold.get("backend"),
            memory=record["memory"],
        )
    return found


def answer_of(models: Sequence[Model], where: str = "") -> tuple[Answer, str]:
    """The answer for all models, and a few sentences with its figures. `where`: protocol and machine of the times."""
    counts = Counter(model.answer for model in models)
    trained = counts[Answer.YES] + counts[Answer.PARTLY]
    if not trained:
        answer = Answer.UNDECIDED if counts[Answer.UNDECIDED] else Answer.NO
    elif counts[Answer.NO] or counts[Answer.UNDECIDED]:
        answer = Answer.SOME
    else:
        answer = Answer.PARTLY if counts[Answer.PARTLY] else Answer.YES
    told = f"{trained} of {len(models)} models train on TVM with right gradients"
    if counts[Answer.PARTLY]:
        told += f", {counts[Answer.PARTLY]} of them partly in PyTorch"
    if counts[Answer.UNDECIDED]:
        told += f", {counts[Answer.UNDECIDED]} ill-conditioned"
    speeds = []
    for name in dict.fromkeys(name for model in models for name in model.ratios):
        timed = [model for model in models if name in model.ratios]
        mean = geometric_mean([model.ratios[name] for model in timed])
        if mean is not None:
            slower = sum(model.ratios[name] < 1 for model in timed)
            speeds.append(f"{mean:.2f} times {name}'s speed ({len(timed)} timed, slower on {slower})")
    if speeds:
        told += f"; a step runs at {' and '.join(speeds)} by geometric mean"
    starts = [ratio for model in models if (ratio := first_ratio(model))]
    if mean := geometric_mean(starts):
        told += f", the first step {mean:.1f} times as soon as Inductor's"
    told += "."
    if speeds:
        sizes = "; ".join(f"{m.name} {', '.join(m.inputs)}" for m in models if m.ratios and m.inputs)
        told += f" Timed: {sizes or 'as the models are'}" + (f"; {where}." if where else ".")
    return answer, told


def first_ratio(model: Model) -> float | None:
    """How many times as long as relaxgrad's Inductor's first step takes; None where one of them was not taken."""
    own, other = (model.candidates.get(name) for name in (RELAXGRAD, INDUCTOR))
    return other.first / own.first if own and other and own.first and other.first else None
