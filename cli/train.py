# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad train`: trains models in eager and on TVM side by side, and says whether TVM trained them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaxgrad.bridge.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from relaxgrad.coverage.harness.process import Outcome

SCHEMA = 1  # of the JSON; raised when a key changes its meaning or goes away
TASK = "relaxgrad.coverage.harness.training:train_task"


def command(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...",
            help="Zoo names, path/to/file.py:factory, or package.module:factory. A factory takes no arguments and "
            "returns (module, inputs) or (module, inputs, loss_fn).",
            show_default=False,
        ),
    ] = None,
    all_models: Annotated[bool, typer.Option("--all", help="The core models of the zoo.")] = False,
    steps: Annotated[int, typer.Option(min=1, help="AdamW steps.")] = 20,
    target: Annotated[str, typer.Option(help="TVM target: KIND or KIND:MODEL, as llvm.")] = "llvm",
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the records to FILE.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of parameters, inputs and dropout.")] = 0,
    fallback: Annotated[
        str, typer.Option(help="What an op without a lowering does: aten runs it, error stops.")
    ] = "aten",
    jobs: Annotated[int, typer.Option(min=1, help="Models at a time. Above 1 the step times disturb each other.")] = 1,
    time_limit: Annotated[float, typer.Option(min=1, help="Seconds for one model.")] = 900.0,
) -> None:
    """Train models in eager and on TVM with the same seed and optimizer, and compare gradients, losses and step times.

    Exit code 0: all trained. 1: one fell short. 2: bad usage, or a model that does not run in eager either.
    """
    names = _names(models or [], all_models)
    if fallback not in ("aten", "error"):
        raise UserError(f"--fallback is aten or error, not {fallback!r}")
    from relaxgrad.bridge.targets import resolve_target
    from relaxgrad.coverage.harness.records import check_writable, versions, write_json

    if json_file is not None:
        check_writable(json_file)
    resolve_target(target)
    arguments = [
        {"model": name, "steps": steps, "seed": seed, "target": target, "fallback": fallback} for name in names
    ]
    outcomes = _run(arguments, jobs, time_limit)
    records = [_record(a, o) for a, o in zip(arguments, outcomes, strict=True)]
    if json_file is not None:
        write_json(
            json_file,
            {"schema": SCHEMA, "command": "train", "machine": _machine(), "versions": versions(), "models": records},
        )
    user_errors = [o for o in outcomes if o.state == "user error"]
    if not (user_errors and len(names) == 1):
        _show(records, jobs)
    if user_errors:
        error = UserError("; ".join(o.message for o in user_errors))
        for outcome in user_errors:
            error.add_note(outcome.traceback)  # `--debug` prints it
        raise error
    if any(record["status"] != "trained" for record in records):
        raise typer.Exit(1)


def _machine() -> str:
    """The CPU that was measured on, as LLVM calls it, and how many of its cores this process may use."""
    from relaxgrad.bridge.devices.cpu.host import host_cpu

    cpu = host_cpu()
    return f"{cpu.name}, {cpu.cores} core{'s' if cpu.cores != 1 else ''}"


def _names(models: list[str], all_models: bool) -> list[str]:
    """The models to train, each once, in order. Raises UserError for those that can be told wrong now."""
    from relaxgrad.coverage.harness.models import check_name
    from relaxgrad.coverage.zoo import CORE, ZOO

    names = list(dict.fromkeys([*(CORE if all_models else ()), *models]))
    if not names:
        more = len(ZOO) - len(CORE)
        raise UserError(
            f"name a model, or --all; zoo models: {', '.join(CORE)} and {more} more (relaxgrad/coverage/zoo)"
        )
    for name in names:
        check_name(name)
    return names


# ---------------------------------------------------------------------------------------------------------------------
# Running


def _run(arguments: list[dict[str, Any]], jobs: int, time_limit: float) -> list[Outcome]:
    """The outcomes, in order. Progress goes to stderr: a bar where it is a terminal, else a line per finished model."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from relaxgrad.coverage.harness.process import run_tasks

    console = Console(stderr=True, emoji=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        overall = progress.add_task("models", total=len(arguments), visible=len(arguments) > 1)
        bars: dict[int, Any] = {}

        def on_event(index: int, event: dict[str, Any]) -> None:
            if index not in bars:
                bars[index] = progress.add_task(arguments[index]["model"], total=arguments[index]["steps"])
            if event["event"] == "stage":
                progress.update(bars[index], description=f"{arguments[index]['model']}: {event['stage']}")
            else:
                losses = event["losses"]
                text = f"{arguments[index]['model']}: loss {losses['compiled']:.4f}, eager {losses['eager']:.4f}"
                progress.update(bars[index], description=text, completed=event["step"])

        def on_done(index: int, outcome: Outcome) -> None:
            if index in bars:
                progress.remove_task(bars[index])
            progress.advance(overall)
            if len(arguments) > 1:
                line = f"{arguments[index]['model']}: {_headline(outcome)} ({outcome.seconds:.0f} s)"
                progress.console.print(line, highlight=False, markup=False, soft_wrap=True)

        return run_tasks(TASK, arguments, time_limit, jobs, on_event, on_done)


def _headline(outcome: Outcome) -> str:
    if outcome.value is None:
        return f"failed: {outcome.message}"
    return _status(outcome.value)


def _status(record: dict[str, Any]) -> str:
    return str(record["status"]) + (f": {record['reason']}" if record["reason"] else "")


def _record(arguments: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    """The worker's record, or one that says how the worker ended."""
    from relaxgrad.coverage.harness.train_record import TrainRecord

    if outcome.value is not None:
        return outcome.value
    return TrainRecord(
        arguments["model"],
        reason=outcome.message.removeprefix(f"{arguments['model']}: "),
        backend="relaxgrad",
        target=arguments["target"],
        fallback=arguments["fallback"],
        seed=arguments["seed"],
        steps=arguments["steps"],
    ).to_json()


# ---------------------------------------------------------------------------------------------------------------------
# Showing


def _show(records: list[dict[str, Any]], jobs: int) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)  # a model's name may read like markup
    if len(records) == 1 and records[0]["graph_details"]:
        _show_details(console, records[0])
    if len(records) > 1 or records[0]["time_eager"]:
        _show_tables(console, records)
    for record in records:
        if record["status"] != "trained":
            console.print(f"{record['model']}: {_status(record)}", soft_wrap=True)
            if not record["graph_details"]:  # else the details have them, by graph
                for reason in record["reasons"]:
                    console.print(f"  {reason}", soft_wrap=True)
    if jobs > 1:
        console.print(f"Step times were taken with {jobs} models at a time.", soft_wrap=True)


_RAN = ("parameters", "graphs\nfw+bw+inf", "breaks", "recom-\npiles", "native", "library", "fall-\nback", "meta-\ndata")
_NUMBERS = (
    *("gradients\nright", "worst error\n/ allowed", "loss\neager", "loss\nTVM", "curves\ndiffer"),
    *("step ms\neager", "step ms\nTVM", "first\nstep s"),
)


def _show_tables(console: Console, records: list[dict[str, Any]]) -> None:
    """One table; two on a terminal too narrow for it. A column cut off is worth nothing, so no table is squeezed."""
    from rich.measure import Measurement

    rows = [_row(record) for record in records]
    numbers = [row[:2] + row[2 + len(_RAN) :] for row in rows]
    wide = console.options.update(width=1000)
    tables = [_table((*_RAN, *_NUMBERS), rows)]
    if console.is_terminal and Measurement.get(console, wide, tables[0]).maximum > console.width:
        tables = [_table(_RAN, [row[: 2 + len(_RAN)] for row in rows]), _table(_NUMBERS, numbers)]
    terminal = console.width
    for table in tables:
        console.width = max(terminal, Measurement.get(console, wide, table).maximum)
        console.print(table, soft_wrap=True)
    console.width = terminal


def _table(titles: tuple[str, ...], rows: list[list[str]]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    for title in ("model", "status"):
        table.add_column(title, no_wrap=True)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row, style=None if row[1] == "trained" else "red")
    return table


def _row(record: dict[str, Any]) -> list[str]:
    gradients, calls, graphs = record["gradients"], record["calls"], record["graphs"]
    right = f"{gradients['compared'] - len(gradients['failed'])}/{gradients['compared']}"
    ratio = gradients["worst_ratio"]
    eager, compiled = record["losses_eager"], record["losses_compiled"]
    return [
        record["model"],
        record["status"],
        f"{record['parameters']:,}",
        "+".join(str(graphs[kind]) for kind in ("forward", "backward", "inference")) if graphs else "-",
        str(sum(record["graph_breaks"].values())),
        str(record["recompiles"]),
        *(str(calls.get(kind, "-")) for kind in ("native", "library", "fallback", "metadata")),
        right if gradients["compared"] else "-",
        "-" if ratio is None else f"{ratio:.2f}",
        f"{eager[-1]:.6f}" if eager else "-",
        f"{compiled[-1]:.6f}" if compiled else "-",
        "-" if record["loss_difference"] is None else f"{record['loss_difference']:.0e}",
        _milliseconds(record["time_eager"]),
        _milliseconds(record["time_compiled"]),
        f"{record['time_compiled']['first']:.1f}" if record["time_compiled"] else "-",
    ]


def _milliseconds(timing: dict[str, Any] | None) -> str:
    return "-" if timing is None or timing["median"] is None else f"{timing['median'] * 1e3:.2f}"


def _show_details(console: Console, record: dict[str, Any]) -> None:
    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    say(
        f"{record['model']}: {record['parameters']:,} parameters, {record['steps']} AdamW steps, "
        f"seed {record['seed']}, target {record['target']}, {record['threads']} thread{_s(record['threads'])}"
    )
    details = record["graph_details"]
    say(f"{len(details)} graph{_s(len(details))}:")
    for graph in details:
        calls = ", ".join(f"{count} {kind}" for kind, count in graph["calls"].items() if count)
        symbolic = ", symbolic sizes" if graph["symbolic"] else ""
        how = f"compiled by TVM in {sum(graph['seconds'].values()):.2f} s, {graph['kernels']} kernels"
        if not (graph["calls"].get("native") or graph["calls"].get("library")):
            how = "not compiled by TVM"
        say(f"  {graph['kind']}: {how} (ops: {calls}{symbolic}), run {graph['runs']} times")
    for reason, count in record["graph_breaks"].items():
        say(f"  graph break, {count} times: {reason}")
    for reason in record["reasons"]:
        say(f"  {reason}")
    for what in ("gradients", "buffers"):
        validation = record[what]
        if not validation["compared"]:
            continue
        right = validation["compared"] - len(validation["failed"])
        worst = validation["worst"]
        say(
            f"{what} of the first step: {right} of {validation['compared']} right by float64; worst {worst['name']}, "
            f"error {worst['error']:.1e}, eager's own {worst['eager_error']:.1e}, allowed {worst['allowed']:.1e}"
        )
        for line in validation["failed"]:
            say(f"  {line}")


def _s(count: int) -> str:
    return "" if count == 1 else "s"
