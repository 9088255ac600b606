# SPDX-License-Identifier: Apache-2.0
"""report.html: one file without network, for screens of any width, paper, light and dark."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relaxgrad.benchmarks.names import RELAXGRAD
from relaxgrad.benchmarks.record import geometric_mean

from ..source_lines import Near
from .answers import first_ratio
from .charts import KINDS, coverage, css_of, speeds, starts
from .schema import Answer, Finding, Model, Report

BLOCKERS = ("operators", "dynamic shapes", "in-place and optimizer state")
MANY = 6  # places of a finding that are shown unfolded
_FOLDER = "templates"
_SHORT = {
    Answer.YES: "yes",
    Answer.PARTLY: "partly",
    Answer.SOME: "partly",
    Answer.UNDECIDED: "unsteady",
    Answer.NO: "no",
}
_RANKS = {answer: rank for rank, answer in enumerate(_SHORT)}
_UNSOLVED = ("blocks", "worked around")


@dataclass(frozen=True)
class Figure:
    """A number that stands large, and what it counts."""

    value: str
    what: str
    detail: str


@dataclass(frozen=True)
class Obstacle:
    """What keeps a model from a plain yes."""

    model: Model
    findings: list[Finding]


def html(report: Report) -> str:
    """The text of report.html."""
    import jinja2

    files = importlib.resources.files(__package__) / _FOLDER
    anchors = _anchors([model.name for model in report.models])
    text = {name: (files / name).read_text(encoding="utf-8") for name in ("report.html.j2", "report.css", "report.js")}
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "ms": lambda seconds: f"{seconds * 1e3:,.2f}",
        "mib": lambda size: f"{size / 2**20:,.0f}",
        "count": lambda n: f"{n:,}",
        "anchor": anchors.__getitem__,
        "short": _SHORT.__getitem__,
        "rank": _RANKS.__getitem__,
        "words": _words,
        "day": lambda created: created.replace("T", " ")[:16],
        "near": Near(_sources(report.models)),
    }
    names = list(dict.fromkeys(name for model in report.models for name in model.candidates))
    return environment.from_string(text["report.html.j2"]).render(
        report=report,
        css=text["report.css"],
        js=text["report.js"],
        kinds=[k for k in KINDS if k != "unsupported" or any(m.calls.get(k) for m in report.models)],
        blockers=BLOCKERS,
        many=MANY,
        levels={m.name: {f.blocker: f for f in m.findings} for m in report.models},
        candidates=names,
        others=[name for name in names if name != RELAXGRAD],
        colours=css_of(names),
        figures=_figures(report.models),
        obstacles=_obstacles(report.models),
        coverage=coverage(report.models),
        speeds=speeds(report.models, names),
        starts=starts(report.models, names),
    )


def _sources(models: Sequence[Model]) -> Iterator[str]:
    for model in models:
        yield from (source for op in model.ops for source in op.sources)
        yield from (place.where for finding in model.findings for place in finding.evidence)


def _anchors(names: Sequence[str]) -> dict[str, str]:
    """Names as ids, a number at the end of one that would be another's."""
    found: dict[str, str] = {}
    for name in names:
        plain = "model-" + "".join(c if c.isalnum() else "-" for c in name)
        alike = sum(anchor == plain or anchor.startswith(f"{plain}--") for anchor in found.values())
        found[name] = f"{plain}--{alike + 1}" if alike else plain
    return found


def _words(model: Model) -> str:
    """What the filter looks at."""
    return " ".join([model.name, model.group, model.answer, *(f.level for f in model.findings)])


def _figures(models: Sequence[Model]) -> list[Figure]:
    """The figures of all models that a reader looks for first."""
    trained = [model for model in models if model.answer in (Answer.YES, Answer.PARTLY)]
    partly = sum(model.answer is Answer.PARTLY for model in models)
    right, gradients = sum(m.gradients_right for m in models), sum(m.gradients for m in models)
    calls = sum(sum(model.calls.values()) for model in models)
    fallbacks = sum(model.calls.get("fallback", 0) for model in models)
    found = [
        Figure(f"{len(trained)} of {len(models)}", "models train", f"{partly or 'none'} of them partly in PyTorch"),
        Figure(f"{right:,} of {gradients:,}", "gradients right", "validated against float64"),
        Figure(f"{fallbacks:,} of {calls:,}", "op calls fall back", "to PyTorch, for want of a lowering"),
    ]
    for name in dict.fromkeys(name for model in models for name in model.ratios):
        ratios = [model.ratios[name] for model in models if name in model.ratios]
        if (mean := geometric_mean(ratios)) is not None:
            found.append(Figure(f"{mean:.2f}×", f"{name}'s speed", f"a step, geometric mean of {_models(ratios)}"))
    firsts = [ratio for model in models if (ratio := first_ratio(model))]
    if mean := geometric_mean(firsts):
        what = "as soon as Inductor"
        found.append(Figure(f"{mean:.1f}×", what, f"through the first step, geometric mean of {_models(firsts)}"))
    if graphs := sum(model.upstream.graphs for model in models if model.upstream):
        own = sum(model.upstream.right for model in models if model.upstream)
        found.append(Figure(f"{own:,} of {graphs:,}", "graphs right", "with TVM's own importer"))
    return found


def _models(found: Sequence[object]) -> str:
    return f"{len(found)} model{'' if len(found) == 1 else 's'}"


def _obstacles(models: Sequence[Model]) -> list[Obstacle]:
    """The models that are no plain yes or have something left, the worst first."""
    found = [Obstacle(model, [f for f in model.findings if f.level in _UNSOLVED]) for model in models]
    return sorted(
        (o for o in found if o.findings or o.model.answer is not Answer.YES),
        key=lambda o: (-_RANKS[o.model.answer], -sum(f.level == "blocks" for f in o.findings)),
    )
