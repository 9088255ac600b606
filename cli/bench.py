# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad bench`: the training step's time, start and memory beside eager's and Inductor's, right ones only."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaxgrad.bridge.errors import UserError

from .audit_models import chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from relaxgrad.benchmarks.record import ModelRecord, Settings

PROTOCOLS = ("fwd_bwd", "step")
MALLOC = ("system", "tuned", "both")


def command(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...",
            help="Zoo names, path/to/file.py:factory, package.module:factory. With --check alone, the stored models.",
            show_default=False,
        ),
    ] = None,
    zoo: Annotated[
        str | None,
        typer.Option("--zoo", metavar="GROUP", help="Models of the zoo; perf has sizes of use.", show_default=False),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Baselines: inductor, eager, aot_eager, any backend of torch.compile, package.module:backend; "
            "inductor,eager by default.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of torch, BLAS and TVM; 1 by default.", show_default=False)
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(metavar="fwd_bwd|step", help="step: with AdamW; fwd_bwd by default.", show_default=False),
    ] = None,
    dynamic: Annotated[
        bool,
        typer.Option("--dynamic", help="The step with a symbolic batch, and with all sizes symbolic, as candidates."),
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds, after 3 of warm-up.")] = 15,
    profile: Annotated[
        bool, typer.Option("--profile", help="Time by kernel, beside what memory and GEMM allow.")
    ] = False,
    malloc: Annotated[
        str | None,
        typer.Option(
            metavar="system|tuned|both",
            help="tuned: glibc keeps freed memory, in every candidate; system by default.",
            show_default=False,
        ),
    ] = None,
    warm: Annotated[
        bool, typer.Option("--warm/--no-warm", help="Measure the first step on a warm cache as well.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="Of parameters, inputs and dropout.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the records to FILE.", show_default=False)
    ] = None,
    plot_file: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the ratios into FILE.svg or FILE.png.", show_default=False),
    ] = None,
    check_file: Annotated[
        Path | None,
        typer.Option(
            "--check",
            metavar="FILE",
            help="Compare the ratios with a stored run; fail where one fell.",
            show_default=False,
        ),
    ] = None,
    time_limit: Annotated[float, typer.Option(min=1, help="Seconds for one answer of a worker.")] = 900.0,
) -> None:
    """Time training steps on TVM beside eager and Inductor: interleaved rounds, own processes, right steps only.

    Exit code 0: relaxgrad was timed on every model, and no ratio fell below a stored run. 1: it fell short. 2: bad
    usage, or a model that does not run in eager either. Ctrl-C keeps the models that are done.
    """
    from relaxgrad.benchmarks.check import check_comparable, read_run
    from relaxgrad.benchmarks.machine import this_machine
    from relaxgrad.benchmarks.plot import check_plot
    from relaxgrad.coverage.harness.records import check_writable

    stored = None if check_file is None else read_run(check_file)
    then = {} if stored is None else stored["settings"]
    names = chosen(models or [], zoo)
    if stored is not None and not names:
        names = list(dict.fromkeys(record["model"] for record in stored["models"]))
    if not names:
        raise UserError("name a model, or --zoo perf; the zoo's names: relaxgrad audit --zoo all --list")
    if stored is not None and not set(names) & {record["model"] for record in stored["models"]}:
        raise UserError(f"{check_file} has none of {', '.join(names)}; without a model, those that it has are measured")
    settings = _settings(
        against=against or ",".join(then.get("against", ())) or "inductor,eager",
        threads=threads or then.get("threads", 1),
        protocol=protocol or then.get("protocol", PROTOCOLS[0]),
        malloc=malloc or then.get("malloc", MALLOC[0]),
        dynamic=dynamic or bool(then.get("dynamic")),
        rounds=rounds,
        seed=seed,
    )
    for file in (json_file, plot_file):
        if file is not None:
            check_writable(file)
    if plot_file is not None:
        check_plot(plot_file)
    machine = this_machine().to_json()
    if stored is not None and check_file is not None:
        check_comparable(check_file, stored, machine, settings[0].to_json())
    head = {"machine": machine, "settings": settings[0].to_json() | {"malloc": _malloc_name(settings)}}
    records: list[dict[str, Any]] = []
    try:
        for record in _measure(names, settings, time_limit, warm, profile):
            records.append(record.to_json())
            if json_file is not None:
                _write(json_file, head, records)
    finally:  # an interrupt as well
        _show(records)
    fell = stored is not None and _compare(records, stored)
    if plot_file is not None and any(record["ratios"] for record in records):
        from relaxgrad.benchmarks.plot import plot

        plot(plot_file, records)
    user_errors = [f"{r['model']}: {r['reason']}" for r in records if r["user_error"]]
    if user_errors:
        raise UserError("; ".join(dict.fromkeys(user_errors)))
    if fell or any(not _timed(record) for record in records):
        raise typer.Exit(1)


def _settings(against: str, malloc: str, protocol: str, **rest: Any) -> list[Settings]:
    """A Settings for each malloc. Raises UserError for values that are none."""
    from relaxgrad.benchmarks.names import parse_against
    from relaxgrad.benchmarks.record import Settings

    if protocol not in PROTOCOLS:
        raise UserError(f"--protocol is {' or '.join(PROTOCOLS)}, not {protocol!r}")
    if malloc not in MALLOC:
        raise UserError(f"--malloc is {', '.join(MALLOC[:-1])} or {MALLOC[-1]}, not {malloc!r}")
    each = MALLOC[:-1] if malloc == "both" else (malloc,)
    return [Settings(parse_against(against), protocol=protocol, malloc=one, **rest) for one in each]


def _malloc_name(settings: Sequence[Settings]) -> str:
    return settings[0].malloc if len(settings) == 1 else "both"


def _timed(record: dict[str, Any]) -> bool:
    from relaxgrad.benchmarks.names import RELAXGRAD

    own = record["candidates"].get(RELAXGRAD)
    return own is not None and own["status"] == "timed" and not own["warm_reason"].startswith("wrong")


# ---------------------------------------------------------------------------------------------------------------------
# Running


def _measure(
    names: list[str], settings: Sequence[Settings], time_limit: float, warm: bool, profile: bool
) -> Iterator[ModelRecord]:
    """The records, as they are made. Progress, and an estimate of what is left, go to stderr."""
    from rich.console import Console

    from relaxgrad.benchmarks.run import bench_model

    console = Console(stderr=True, emoji=False, highlight=False, markup=False)
    runs = [(name, one, index == 0) for name in names for index, one in enumerate(settings)]
    taken: dict[bool, list[float]] = {True: [], False: []}  # by whether the start on a warm cache is part of it
    with console.status("") as status:
        for number, (name, one, first) in enumerate(runs):
            what = f"{name}, malloc {one.malloc}" if len(settings) > 1 else name
            say = _sayer(what, status.update)
            # How a process starts does not depend on malloc to speak of: it is measured once.
            record = bench_model(name, one, time_limit, start_up=warm and first, profile=profile, say=say)
            yield record
            taken[first].append(record.seconds)
            left = estimate([start for _, _, start in runs[number + 1 :]], taken)
            console.print(f"{what}: {headline(record)} ({record.seconds:.0f} s{left})", soft_wrap=True)


def _sayer(what: str, update: Callable[[str], None]) -> Callable[[str], None]:
    start = time.monotonic()
    return lambda text: update(f"{what}: {text} ({time.monotonic() - start:.0f} s)")


def estimate(left: Sequence[bool], taken: dict[bool, list[float]]) -> str:
    """As `, about 12 min left`; empty where nothing is left. A kind of run that was not seen yet takes as the other."""
    if not left:
        return ""
    means = {kind: sum(seconds) / len(seconds) for kind, seconds in taken.items() if seconds}
    seconds = sum(means.get(kind, max(means.values())) for kind in left)
    return f", about {seconds:.0f} s left" if seconds < 90 else f", about {seconds / 60:.0f} min left"


def headline(record: ModelRecord) -> str:
    """What became of a model, in one line."""
    if record.reason:
        return f"failed: {record.reason}"
    found = []
    for name, candidate in record.candidates.items():
        if candidate.step is not None:
            found.append(f"{name} {candidate.step.median * 1e3:.2f} ms")
        else:
            found.append(f"{name} {candidate.status}: {candidate.reason}")
    return ", ".join(found)


def _write(path: Path, head: dict[str, Any], records: list[dict[str, Any]]) -> None:
    from relaxgrad.benchmarks.record import SCHEMA
    from relaxgrad.coverage.harness.records import versions, write_json

    write_json(path, {"schema": SCHEMA, "command": "bench", **head, "versions": versions(), "models": records})


# ---------------------------------------------------------------------------------------------------------------------
# Showing


def _show(records: list[dict[str, Any]]) -> None:
    from relaxgrad.benchmarks.table import report

    if records:
        typer.echo(report(records))


def _compare(records: list[dict[str, Any]], stored: dict[str, Any]) -> bool:
    """Prints every ratio beside the stored one; whether one fell, or cannot be told."""
    from relaxgrad.benchmarks.check import changes

    found = changes(records, stored["models"])
    if not found:
        raise UserError("the stored run has none of these models with a ratio, so there is nothing to compare")
    typer.echo("\n## Beside the stored run\n")
    for change in found:
        typer.echo(f"- {change}")
    return not all(change.passed for change in found)
