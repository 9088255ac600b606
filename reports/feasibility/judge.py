"""From the records of an audit and of a benchmark to answers: yes, no, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from relaxgrad.benchmarks.names import INDUCTOR, RELAXGRAD
from relaxgrad.benchmarks.record import Status, geometric_mean

from .schema import Answer, Contender, Finding, Model, Op, Stock

_ANSWERS = {"trains": Answer.YES, "trains, partly in PyTorch": Answer.PARTLY}
_SOLVED = ("clear", "not measured")


def model_of(audit: Mapping[str, Any], bench: Mapping[str, Any] | None) -> Model:
    """One model from its record of an audit, and that of a benchmark where there is one."""
    train = audit["train"] or {}
    gradients = train.get("gradients", {"compared": 0, "failed": []})
    findings = [_finding(f) for f in audit["findings"].values()]
    numbers = audit["findings"].get("operators", {}).get("numbers", {})
    answer = _ANSWERS.get(audit["verdict"], Answer.NO)
    reason = "" if answer is not Answer.NO else f"{audit['cause']}: {audit['reason']}".removeprefix(": ")
    contenders = _contenders(bench)
    own = contenders.get(RELAXGRAD)
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
        findings=findings,
        ops=[Op(**op) for op in audit["ops"]],
        stock=_stock(audit["stock"]),
        contenders=contenders,
        ratios={name: ratio["median"] for name, ratio in (bench["ratios"] if bench else {}).items()},
    )


def _finding(found: Mapping[str, Any]) -> Finding:
    return Finding(**{key: found[key] for key in ("blocker", "level", "headline", "evidence")})


def findings_of(found: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """What an audit found out about the installation."""
    return [_finding(f) for f in found]


def _stock(records: Sequence[Mapping[str, Any]] | None) -> Stock | None:
    if records is None:
        return None
    outcomes = Counter(record["outcome"] for record in records)
    return Stock(graphs=len(records), right=outcomes["right"], outcomes=dict(outcomes))


def _contenders(bench: Mapping[str, Any] | None) -> dict[str, Contender]:
    if bench is not None and bench.get("reason"):  # of the whole model: nothing was timed
        nothing = dict.fromkeys(("step", "spread", "first", "backend", "memory"))
        return {RELAXGRAD: Contender(status=Status.FAILED, reason=bench["reason"], **nothing)}
    found = {}
    for name, record in (bench["contenders"] if bench else {}).items():
        cold = (record["cold"] if record["status"] != Status.WRONG else None) or {}
        step = record["step"] or {}
        found[name] = Contender(
            status=record["status"],
            reason=record["reason"],
            step=step.get("median"),
            spread=step.get("spread"),
            first=cold.get("first"),
            backend=cold.get("backend"),
            memory=record["memory"],
        )
    return found


def answer_of(models: Sequence[Model]) -> tuple[Answer, str]:
    """The answer for all models, and one sentence with its figures."""
    counts = Counter(model.answer for model in models)
    trained = counts[Answer.YES] + counts[Answer.PARTLY]
    if not trained:
        answer = Answer.NO
    elif counts[Answer.NO]:
        answer = Answer.SOME
    else:
        answer = Answer.PARTLY if counts[Answer.PARTLY] else Answer.YES
    told = f"{trained} of {len(models)} models train on TVM with right gradients"
    if counts[Answer.PARTLY]:
        told += f", {counts[Answer.PARTLY]} of them partly in PyTorch"
    speeds = []
    for name in dict.fromkeys(name for model in models for name in model.ratios):
        ratios = [model.ratios[name] for model in models if name in model.ratios]
        mean = geometric_mean(ratios)
        if mean is not None:
            speeds.append(f"{mean:.2f} times {name}'s speed ({len(ratios)} timed)")
    if speeds:
        told += f"; a step runs at {' and '.join(speeds)} by geometric mean"
    starts = [ratio for model in models if (ratio := first_ratio(model))]
    if mean := geometric_mean(starts):
        told += f", the first step {mean:.1f} times as soon as Inductor's"
    return answer, told + "."


def first_ratio(model: Model) -> float | None:
    """How many times as long as relaxgrad's Inductor's first step takes; None where one of them was not taken."""
    own, other = (model.contenders.get(name) for name in (RELAXGRAD, INDUCTOR))
    return other.first / own.first if own and other and own.first and other.first else None
