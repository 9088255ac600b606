# SPDX-License-Identifier: Apache-2.0
"""The charts of report.html, as numbers: rows of bars, in percent of the width of their track."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from relaxgrad.benchmarks.names import EAGER, RELAXGRAD

from .schema import Candidate, Model

KINDS = ("native", "library", "metadata", "fallback", "unsupported")
#: Half of a track that the longest bar takes on a scale with a middle; the rest is for the label at its end.
_HALF = 36.0
#: Of a track without a middle, for the same reason.
_WHOLE = 86.0
#: Widest share of a track that has no room for its own label.
_NARROW = 9.0
#: (widest scale, the ratios that are marked on it)
_MARKS = (
    (2.2, (0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0)),
    (9.0, tuple(2.0**n for n in range(-3, 4))),
    (math.inf, tuple(4.0**n for n in range(-6, 7))),
)


@dataclass(frozen=True)
class Bar:
    """A bar. `side`: where its label stands: "in" it, "after" or "before" it."""

    css: str
    start: float
    width: float
    label: str
    title: str  # the same in words, with units
    side: str = "in"


@dataclass(frozen=True)
class Line:
    """One track of a row: its bars, which do not overlap."""

    bars: list[Bar]


@dataclass(frozen=True)
class Row:
    """A model's part of a chart."""

    model: str
    lines: list[Line]
    note: str = ""  # at its end


@dataclass(frozen=True)
class Tick:
    """A line through all tracks, with what it stands for."""

    at: float
    label: str
    main: bool = False
    extra: bool = False  # without its label where there is little room


@dataclass(frozen=True)
class Chart:
    """Rows over one scale, and what the colours mean."""

    rows: list[Row]
    ticks: list[Tick]
    legend: list[tuple[str, str]] = field(default_factory=list)  # (css, in words)


def css_of(candidates: Sequence[str]) -> dict[str, str]:
    """Candidate -> the name of its colour, the same in every chart."""
    others = [name for name in candidates if name not in (RELAXGRAD, EAGER)]
    return {RELAXGRAD: "own", EAGER: EAGER} | {name: f"other-{number % 3}" for number, name in enumerate(others)}


def coverage(models: Sequence[Model]) -> Chart:
    """Shares of a model's calls by kind."""
    rows = []
    for model in models:
        total = sum(model.calls.values())
        bars, start = [], 0.0
        for kind in KINDS:
            count = model.calls.get(kind, 0)
            if count:
                width = 100 * count / total
                label = f"{width:.0f}%" if width > _NARROW else ""
                bars.append(Bar(kind, start, width, label, f"{kind}: {count:,} of {total:,} calls, {width:.1f}%"))
                start += width
        rows.append(Row(model.name, [Line(bars)], f"{total:,} calls" if total else "not measured"))
    used = [kind for kind in KINDS if any(model.calls.get(kind) for model in models)]
    return Chart(rows, [], [(kind, kind) for kind in used])


def speeds(models: Sequence[Model], candidates: Sequence[str]) -> Chart:
    """How many times as fast as each baseline relaxgrad's step is, on a logarithmic scale around 1.

    No rows where nothing was timed. A candidate that was not timed has its reason in place of a bar.
    """
    ratios = [ratio for model in models for ratio in model.ratios.values()]
    if not ratios:
        return Chart([], [])
    colours = css_of(candidates)
    others = [name for name in candidates if name != RELAXGRAD]
    reach = max(max(abs(math.log(ratio)) for ratio in ratios), math.log(1.5))
    rows = []
    for model in models:
        own = model.candidates.get(RELAXGRAD)
        if own is None:
            continue
        if own.step is None:
            rows.append(Row(model.name, [Line([_untimed(RELAXGRAD, own, 50)])]))
            continue
        lines = []
        for name in others:
            other = model.candidates.get(name)
            if name in model.ratios:
                ratio = model.ratios[name]
                width = _HALF * abs(math.log(ratio)) / reach
                start, side = (50.0, "after") if ratio >= 1 else (50 - width, "before")
                title = f"{ratio:.2f} times {name}'s speed"
                lines.append(Line([Bar(colours[name], start, max(width, 0.3), f"{ratio:.2f}×", title, side)]))
            elif other is not None:
                lines.append(Line([_untimed(name, other, 50)]))
        rows.append(Row(model.name, lines))
    marks = next(marks for widest, marks in _MARKS if math.exp(reach) <= widest)
    shown = [ratio for ratio in marks if abs(math.log(ratio)) <= reach * 1.02]
    middle = shown.index(1.0)
    ticks = [
        Tick(50 + _HALF * math.log(ratio) / reach, f"{ratio:.3g}×", ratio == 1, (number - middle) % 2 == 1)
        for number, ratio in enumerate(shown)
    ]
    return Chart(rows, ticks, [(colours[name], f"against {name}") for name in others])


def starts(models: Sequence[Model], candidates: Sequence[str]) -> Chart:
    """Seconds of the first step. No rows where none was taken."""
    times: list[float] = [c.first for model in models for c in model.candidates.values() if c.first]
    if not times:
        return Chart([], [])
    colours, longest = css_of(candidates), max(times)
    rows = []
    for model in models:
        lines = []
        for name in candidates:
            found = model.candidates.get(name)
            if found is not None and found.first:
                title = f"{name}: first step {found.first:.2f} s"
                width = _WHOLE * found.first / longest
                lines.append(Line([Bar(colours[name], 0, max(width, 0.3), _seconds(found.first), title, "after")]))
            elif found is not None:
                lines.append(Line([_untimed(name, found, 0)]))
        if lines:
            rows.append(Row(model.name, lines))
    step = _round_step(longest)
    ticks = [Tick(_WHOLE * n * step / longest, f"{n * step:g} s", n == 0) for n in range(int(longest / step) + 1)]
    return Chart(rows, ticks, [(colours[name], name) for name in candidates])


def _untimed(name: str, candidate: Candidate, at: float) -> Bar:
    return Bar("none", at, 0, f"{name}: {candidate.status}", candidate.reason or candidate.status, "after")


def _seconds(time: float) -> str:
    return f"{time:.1f} s" if time >= 0.1 else f"{time * 1e3:.0f} ms"


def _round_step(longest: float) -> float:
    """1, 2 or 5 times a power of ten, such that a scale up to `longest` has two to five of them."""
    power = 10.0 ** math.floor(math.log10(longest))
    return next(f * power for f in (0.2, 0.5, 1.0, 2.0, 5.0) if longest / (f * power) <= 5)
