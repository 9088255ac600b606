# SPDX-License-Identifier: Apache-2.0
"""report.md: the report as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from relaxgrad.benchmarks.names import RELAXGRAD

from ..markdown import cell, prose, table
from .charts import KINDS
from .schema import Answer, Model, Report

PLACES = 5  # of a finding that are shown


def markdown(report: Report) -> str:
    """The text of report.md."""
    parts = [
        "# Can it train on TVM?",
        f"**{report.answer.said()}.** {report.sentence}",
        _models_table(report.models),
    ]
    if any(model.candidates for model in report.models):
        parts += ["## Time", f"{report.protocol}.", _times_table(report.models)]
    parts.append("## The installation")
    parts.append(
        "\n".join(f"- {f.blocker}: {f.level}: {prose(f.headline)}" for f in report.installation) or "Not audited."
    )
    parts += [_section(model) for model in report.models]
    machine, versions = report.machine, report.versions
    told = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    parts += [
        "## How this was made",
        f"{report.created}; {machine['cpu']}, {machine['cores']} cores, {machine['memory']} GiB; {told}.",
        "\n".join(["```sh", *report.commands, "```"]),
    ]
    return "\n\n".join(parts) + "\n"


def _models_table(models: Sequence[Model]) -> str:
    rows = [
        [
            f"`{cell(model.name)}`",
            str(model.answer),
            f"{model.parameters:,}",
            str(model.graphs),
            *(f"{model.calls.get(kind, 0):,}" for kind in KINDS),
            f"{model.gradients_right} of {model.gradients}",
            f"{model.upstream.right} of {model.upstream.graphs}" if model.upstream else "-",
        ]
        for model in models
    ]
    columns = ("model", "answer", "parameters", "graphs", *KINDS, "gradients right", "TVM's own importer")
    return table(rows, columns)


def _times_table(models: Sequence[Model]) -> str:
    names = list(dict.fromkeys(name for model in models for name in model.candidates))
    others = [name for name in names if name != RELAXGRAD]
    rows = []
    for model in models:
        row = [f"`{cell(model.name)}`"]
        for name in names:
            candidate = model.candidates.get(name)
            row.append("-" if candidate is None else _milliseconds(candidate.step) or candidate.status)
        row += [f"{model.ratios[name]:.2f}" if name in model.ratios else "-" for name in others]
        for name in names:
            candidate = model.candidates.get(name)
            row.append("-" if candidate is None or candidate.first is None else f"{candidate.first:.1f}")
        rows.append(row)
    ratios, starts = (f"{n} / relaxgrad" for n in others), (f"first step, {n} s" for n in names)
    columns = ("model", *(f"{n} ms" for n in names), *ratios, *starts)
    return table(rows, columns)


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.2f}"


def _section(model: Model) -> str:
    lines = [f"## {model.name}", f"{model.answer.said()}." + (f" {prose(model.reason)}" if model.reason else "")]
    for finding in model.findings:
        lines.append(f"- **{finding.blocker}**: {finding.level}: {prose(finding.headline)}")
        for place in finding.evidence[:PLACES]:
            where = f" at `{place.where.replace('`', chr(39))}`" if place.where else ""
            lines.append(f"  - {prose(place.what)}{where}")
        if len(finding.evidence) > PLACES:
            lines.append(f"  - and {len(finding.evidence) - PLACES} more places")
    if model.conditioning and model.answer not in (Answer.NO, Answer.UNDECIDED):
        lines.append(f"- **ill-conditioned**, and right at another seed: {prose('; '.join(model.conditioning))}")
    for name, candidate in model.candidates.items():
        if candidate.conditioning:
            lines.append(f"- {name} was timed though its first step is not right: {prose(candidate.conditioning)}")
        if candidate.reason:
            lines.append(f"- {name} was not timed: {candidate.status}: {prose(candidate.reason)}")
    head, *rest = lines
    return f"{head}\n\n" + "\n".join([rest[0], "", *rest[1:]]).rstrip()


def headline(report: Report) -> str:
    """The answer in one line, for the terminal."""
    return f"{report.answer}: {report.sentence}"


def short(model: Model) -> str:
    """A model in one line, for the terminal."""
    if model.answer in (Answer.NO, Answer.UNDECIDED):
        return f"{model.name}: {model.answer}: {model.reason}"
    return f"{model.name}: {model.answer}" + (f"; {'; '.join(model.missing)}" if model.missing else "")
