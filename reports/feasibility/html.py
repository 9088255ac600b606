"""report.html: one file without network, for screens of any width, paper, light and dark."""

from __future__ import annotations

import importlib.resources
import math
from collections.abc import Sequence
from dataclasses import dataclass

from relaxgrad.benchmarks.names import RELAXGRAD

from .schema import Model, Report

KINDS = ("native", "library", "metadata", "fallback", "unsupported")
BLOCKERS = ("operators", "dynamic shapes", "in-place and optimizer state")
_FOLDER = "templates"


@dataclass(frozen=True)
class Bar:
    """A bar of a chart, in percent of the chart's width."""

    label: str
    start: float
    width: float
    css: str
    title: str


@dataclass(frozen=True)
class Row:
    """A line of a chart: a model and its bars."""

    model: str
    bars: list[Bar]


def html(report: Report) -> str:
    """The text of report.html."""
    import jinja2

    files = importlib.resources.files(__package__) / _FOLDER
    text = {name: (files / name).read_text(encoding="utf-8") for name in ("report.html.j2", "report.css", "report.js")}
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"ms": _ms, "count": lambda n: f"{n:,}", "anchor": _anchor}
    names = list(dict.fromkeys(name for model in report.models for name in model.contenders))
    return environment.from_string(text["report.html.j2"]).render(
        report=report,
        css=text["report.css"],
        js=text["report.js"],
        kinds=KINDS,
        blockers=BLOCKERS,
        levels={m.name: {f.blocker: f for f in m.findings} for m in report.models},
        contenders=names,
        others=[name for name in names if name != RELAXGRAD],
        coverage=_coverage(report.models),
        speeds=_speeds(report.models, [name for name in names if name != RELAXGRAD]),
        starts=_starts(report.models, names),
    )


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.2f}"


def _anchor(name: str) -> str:
    """A name as an id."""
    return "model-" + "".join(c if c.isalnum() else "-" for c in name)


def _coverage(models: Sequence[Model]) -> list[Row]:
    """Shares of a model's calls by kind."""
    rows = []
    for model in models:
        total = sum(model.calls.values())
        bars, start = [], 0.0
        for kind in KINDS:
            count = model.calls.get(kind, 0)
            if count:
                width = 100 * count / total
                bars.append(
                    Bar(
                        f"{width:.0f}%" if width > 8 else "",
                        start,
                        width,
                        kind,
                        f"{kind}: {count:,} of {total:,} calls",
                    )
                )
                start += width
        rows.append(Row(model.name, bars))
    return rows


def _speeds(models: Sequence[Model], others: Sequence[str]) -> list[Row]:
    """How many times as long the others' steps take, on a logarithmic scale around the middle: 1."""
    ratios = [ratio for model in models for ratio in model.ratios.values()]
    if not ratios:
        return []
    reach = max(max(abs(math.log(ratio)) for ratio in ratios), math.log(1.5))
    rows = []
    for model in models:
        bars = []
        for name in others:
            if name in model.ratios:
                ratio = model.ratios[name]
                width = 50 * abs(math.log(ratio)) / reach
                start = 50.0 if ratio >= 1 else 50 - width
                css = "faster" if ratio >= 1 else "slower"
                bars.append(
                    Bar(f"{ratio:.2f}", start, max(width, 0.4), css, f"{name}'s step takes {ratio:.2f} times as long")
                )
        if bars:
            rows.append(Row(model.name, bars))
    return rows


def _starts(models: Sequence[Model], names: Sequence[str]) -> list[Row]:
    """Seconds of the first step."""
    times: list[float] = [c.first for model in models for c in model.contenders.values() if c.first]
    if not times:
        return []
    longest = max(times)
    rows = []
    for model in models:
        bars = []
        for name in names:
            contender = model.contenders.get(name)
            if contender is not None and contender.first:
                width = 100 * contender.first / longest
                css = "own" if name == RELAXGRAD else "other"
                bars.append(
                    Bar(f"{contender.first:.1f} s", 0, width, css, f"{name}: first step {contender.first:.2f} s")
                )
        if bars:
            rows.append(Row(model.name, bars))
    return rows
