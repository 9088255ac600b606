# SPDX-License-Identifier: Apache-2.0
"""The part of `relaxgrad audit` that takes models: runs them, and shows each finding with its source lines."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from relaxgrad.bridge.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from relaxgrad.coverage.audit.auditor import AuditOptions

PLACES = 8  # source lines shown for each finding

THE_MODEL = "the model itself"  # Cause.MODEL: it does not run in eager


def chosen(models: Sequence[str], zoo: str | None) -> list[str]:
    """The models to audit, each once, in order. Raises UserError for those that can be told wrong now."""
    from relaxgrad.coverage.harness.models import check_name, expand
    from relaxgrad.coverage.zoo import select

    names = [*(select(zoo) if zoo is not None else ()), *(name for model in models for name in expand(model))]
    for name in names:
        check_name(name)
    return list(dict.fromkeys(names))


def run(names: list[str], options: AuditOptions, output: Path | None, resume: bool, jobs: int) -> bool:
    """Audits the models, writes their records below `output` and shows them; whether all train, if they were run."""
    from relaxgrad.coverage.audit.many import FILE, read_audit

    if output is None:
        with tempfile.TemporaryDirectory() as folder:
            return run(names, options, Path(folder), False, jobs)
    path = output / FILE
    try:
        _with_progress(names, options, path, resume, jobs)
    finally:
        if path.exists():
            head, found = read_audit(path)
            records = [record for record in found if record["model"] in set(names)]
            _show(records, len(names), head.get("installation", []))
    user_errors = [r for r in records if r["cause"] == THE_MODEL]
    if user_errors and len(names) == 1:
        raise UserError(f"{names[0]}: {user_errors[0]['reason']}")
    return all(record["verdict"] != "does not train" for record in records)


def audited(names: list[str], options: AuditOptions, output: Path, resume: bool, jobs: int) -> list[dict[str, Any]]:
    """Audits the models with progress on stderr, keeps their records below `output`, and returns them."""
    from relaxgrad.coverage.audit.many import FILE, read_audit

    _with_progress(names, options, output / FILE, resume, jobs)
    return [record for record in read_audit(output / FILE)[1] if record["model"] in set(names)]


def _with_progress(names: list[str], options: AuditOptions, path: Path, resume: bool, jobs: int) -> None:
    """Progress goes to stderr: a bar where it is a terminal, and a line for each model that is done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from relaxgrad.coverage.audit.many import audit_models

    console = Console(stderr=True, emoji=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("models", total=len(names))
        running: dict[str, str] = {}

        def listen(model: str, event: dict[str, Any]) -> None:
            if event["event"] == "stage":
                running[model] = event["stage"]
                progress.update(bar, description=", ".join(f"{m}: {stage}" for m, stage in running.items()))

        def done(record: dict[str, Any]) -> None:
            running.pop(record["model"], None)
            progress.advance(bar)
            if len(names) > 1:
                line = f"{record['model']}: {_verdict(record)} ({sum(record['seconds'].values()):.0f} s)"
                progress.console.print(line, highlight=False, markup=False, soft_wrap=True)

        audit_models(names, options, path, resume, jobs, listen, done)


def _verdict(record: dict[str, Any]) -> str:
    cause = f", {record['cause']}" if record["cause"] else ""
    return f"{record['verdict']}{cause}" + (f": {record['reason']}" if record["reason"] else "")


# ---------------------------------------------------------------------------------------------------------------------
# Showing


def _show(records: list[dict[str, Any]], asked: int, installation: list[dict[str, Any]]) -> None:
    from rich.console import Console

    if len(records) == asked == 1 and records[0]["cause"] == THE_MODEL:
        return  # nothing was audited; the command ends with this very line as its error
    console = Console(highlight=False, markup=False, emoji=False)  # a model's name may read like markup
    for finding in installation:
        console.print(f"{finding['blocker']}: {finding['level']}: {finding['headline']}", soft_wrap=True)
    if len(records) == 1:
        _show_one(console, records[0])
        return
    for record in records:
        counts = _calls(record)
        if counts:
            console.print(f"{record['model']}: {_verdict(record)}; {counts}", soft_wrap=True)
    _show_onnx(console, records)
    verdicts = Counter(r["verdict"] for r in records)
    told = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    left = f"; {asked - len(records)} are left, go on with --resume" if len(records) < asked else ""
    console.print(f"{len(records)} models: {told}{left}", soft_wrap=True)


def _show_onnx(console: Console, records: list[dict[str, Any]]) -> None:
    """A table of the path through ONNX, where it was taken, and the ops that it lacks."""
    onnx = [(record["model"], record["onnx"]) for record in records if record["onnx"] is not None]
    if not onnx:
        return
    from tabulate import tabulate

    from relaxgrad.coverage.onnx_path import COLUMNS, lacking_of, row

    console.print(tabulate([[name, *row(found)] for name, found in onnx], ("model", *COLUMNS)), soft_wrap=True)
    lacking = Counter(op for _, found in onnx for op in lacking_of(found))
    if lacking:
        told = ", ".join(f"{op} ({count} models)" for op, count in lacking.most_common())
        console.print(f"without a translation on this path: {told}", soft_wrap=True)


def _calls(record: dict[str, Any]) -> str:
    numbers = record["findings"].get("operators", {}).get("numbers", {})
    kinds = numbers.get("calls_by_kind", {})
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)


def _show_one(console: Console, record: dict[str, Any]) -> None:
    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    say(
        f"{record['model']}: {_verdict(record)}; {record['parameters']:,} parameters; calls: {_calls(record) or 'none'}"
    )
    for finding in record["findings"].values():
        say(f"{finding['blocker']}: {finding['level']}: {finding['headline']}")
        for evidence in finding["evidence"][:PLACES]:
            say(f"  {evidence['what']}" + (f" at {evidence['where']}" if evidence["where"] else ""))
        if len(finding["evidence"]) > PLACES:
            say(f"  and {len(finding['evidence']) - PLACES} more places")
    if record["upstream"] is not None:
        right = sum(r["outcome"] == "right" for r in record["upstream"])
        say(f"TVM's own importer: {right} of {len(record['upstream'])} graphs right")
        for number, graph in enumerate(record["upstream"]):
            if graph["outcome"] != "right":
                say(f"  graph {number}, {graph['kind']}: {graph['outcome']}: {graph['detail']}")
    for number, graph in enumerate(record["onnx"] or ()):
        say(f"by way of ONNX, graph {number}, {graph['kind']}: {_on_road(graph)}")
        if graph["given"] is not None:
            say(f"  with what {', '.join(graph['random'])} draws given: {_on_road(graph['given'])}")
    if record["worker_output"]:
        say(f"the end of what its process printed:\n{record['worker_output']}")
    say(f"took {', '.join(f'{stage} {seconds:.0f} s' for stage, seconds in record['seconds'].items())}")


def _on_road(graph: dict[str, Any]) -> str:
    """How far a graph came by way of ONNX."""
    unmapped = f" ({', '.join(graph['unmapped'])})" if graph["unmapped"] else ""
    runtime = f", {graph['onnxruntime']} in onnxruntime" if graph["onnxruntime"] else ""
    details = "; ".join(text for text in (graph["detail"], graph["runtime_detail"]) if text)
    return f"{graph['tvm']} on TVM{unmapped}{runtime}" + (f": {details}" if details else "")


def list_names(names: Sequence[str]) -> None:
    """One name a line, for scripts."""
    for name in names:
        typer.echo(name)
