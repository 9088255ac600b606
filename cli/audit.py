# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad audit`: models against the five blockers, or operators one by one: what is right, and what ran it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaxgrad.bridge.errors import UserError

from . import audit_models

if TYPE_CHECKING:
    from rich.console import Console

    from relaxgrad.coverage.sweeps.driver import Plan
    from relaxgrad.coverage.sweeps.records import Records

BUILT_IN = "built-in"


def command(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...",
            help="Zoo names, path/to/file.py:factory, package.module:factory; path/to/file.py for each factory in it; "
            "path/to/list.toml with a table \\[models] of names and factories.",
            show_default=False,
        ),
    ] = None,
    zoo: Annotated[
        str | None,
        typer.Option(
            "--zoo", metavar="NAME|all", help="Models of the zoo: a group, a tag, core, all.", show_default=False
        ),
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Print the models' names and stop.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Compile nothing: say what would run where, and why (6 s for a small model)."),
    ] = False,
    blockers: Annotated[
        bool,
        typer.Option("--blockers/--no-blockers", help="Dynamic shapes and in-place updates too, not training alone."),
    ] = True,
    upstream: Annotated[
        bool, typer.Option("--upstream/--no-upstream", help="TVM's own importer on the same graphs, beside ours.")
    ] = True,
    core_aten: Annotated[
        bool, typer.Option("--core-aten", help="Every overload that torch tags as core ATen.")
    ] = False,
    opinfo: Annotated[bool, typer.Option("--opinfo", help="PyTorch's operator database: every entry.")] = False,
    op_logs: Annotated[
        str | None,
        typer.Option(
            "--op-logs",
            metavar="FILE",
            help="Recorded operator calls (PyTorch's operator_inp_logs format), or `built-in`: those of 155 models.",
            show_default=False,
        ),
    ] = None,
    fuzz: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="N random graphs of the ops that have a lowering.")
    ] = None,
    op: Annotated[
        list[str] | None,
        typer.Option("--op", metavar="NAME", help="Only this entry or op. May be repeated.", show_default=False),
    ] = None,
    samples: Annotated[str, typer.Option(metavar="N|all", help="Samples of each entry.")] = "2",
    dtype: Annotated[
        str,
        typer.Option(help="For --opinfo: float32, float64, bfloat16, float16; int64, int32, uint8, bool (forward)."),
    ] = "float32",
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Symbolic sizes, and a second size of the inputs.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of parameters, inputs and dropout; of --fuzz.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("-o", metavar="DIR", help="Write records, JSON and Markdown here.", show_default=False),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the records in DIR.")] = False,
    again: Annotated[
        list[str] | None,
        typer.Option(
            "--again",
            metavar="NAME",
            help="With --resume: check this entry or op anew. May be repeated.",
            show_default=False,
        ),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="With --resume: check anew every sample that did not pass.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    shard: Annotated[str, typer.Option(metavar="I/N", help="The I-th of N parts of the samples.")] = "1/1",
    via: Annotated[
        str | None,
        typer.Option(metavar="onnx", help="For models: a second path to TVM, through ONNX.", show_default=False),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds for one sample (120), or for a model's process (600).", show_default=False),
    ] = None,
    memory_limit: Annotated[
        float | None,
        typer.Option(min=0.5, help="GiB of memory for a model's process.", show_default=False),
    ] = None,
) -> None:
    """Audit models: can they train on TVM, and what stops them? Or, with --core-aten, --opinfo, --op-logs or --fuzz,
    check operators forward and backward through the backend against eager, by the float64 rule.

    A crash or a hang costs one model or sample. Ctrl-C keeps what is done: go on with --resume. Exit code 0: every
    model trains; every sample passes or is in the table of expected failures. 1: one fell short. 2: bad usage.
    """
    names = audit_models.chosen(models or [], zoo)
    if list_only:
        audit_models.list_names(names)
        return
    time_limit_of_sample = time_limit or 120.0
    plans = _plans(core_aten, opinfo, op_logs, op or [], samples, dtype, dynamic, _shard(shard), time_limit_of_sample)
    if not plans and fuzz is None and not names:
        raise UserError(
            "say what to audit: MODEL..., --zoo all, --core-aten, --opinfo, --op-logs FILE (or built-in), --fuzz N"
        )
    if via not in (None, "onnx"):
        raise UserError(f"--via takes onnx, not {via!r}")
    if via is not None:
        _check_onnx(bool(names))
    if resume and output is None:
        raise UserError("--resume goes on with the records of a folder: name it with -o DIR")
    if (again or retry) and not resume:
        raise UserError("--again and --retry replace records of an earlier run: they need --resume and -o DIR")
    if output is not None:
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the folder {output}: {error.strerror}") from error
    short = False
    if names:
        from relaxgrad.coverage.audit.auditor import AuditOptions

        memory = None if memory_limit is None else int(memory_limit * 2**30)
        options = AuditOptions(
            seed,
            dry=dry_run,
            blockers=blockers,
            upstream=upstream and blockers,
            onnx=via is not None,
            time_limit=time_limit or 600.0,
            memory_limit=memory,
        )
        short |= not audit_models.run(names, options, output, resume, jobs)
    for plan in plans:
        short |= not _sweep(plan, output, resume, jobs, again or [], retry)
    if fuzz is not None:
        short |= not _fuzz(fuzz, seed, output, time_limit_of_sample)
    if short:
        raise typer.Exit(1)


def _check_onnx(models: bool) -> None:
    """Raises UserError where --via onnx has nothing to do or to do it with."""
    import importlib.util

    if not models:
        raise UserError("--via onnx takes models: name one, or --zoo")
    if importlib.util.find_spec("onnxscript") is None:
        raise UserError("--via onnx needs onnxscript, which is not installed: pip install relaxgrad[onnx]")


# ---------------------------------------------------------------------------------------------------------------------
# What to run


def _plans(
    core_aten: bool,
    opinfo: bool,
    op_logs: str | None,
    only: list[str],
    samples: str,
    dtype: str,
    dynamic: bool,
    shard: tuple[int, int],
    limit: float,
) -> list[Plan]:
    """The sweeps that the options name. Raises UserError for what can be told wrong now."""
    count = _count(samples)
    if not (core_aten or opinfo or op_logs is not None):  # models alone: spares this process the import of torch
        return []
    from relaxgrad.coverage.sweeps.driver import Plan
    from relaxgrad.coverage.sweeps.opinfo import entry_names
    from relaxgrad.coverage.sweeps.worker import load_sweep

    common: dict[str, Any] = {"samples": count, "dynamic": dynamic}
    plans = []
    if core_aten:
        settings = dict(common)
        names = _chosen(load_sweep("core-aten", settings).entries(), only)
        plans.append(Plan("core-aten", names, settings, shard, limit))
    if opinfo:
        plans.append(Plan("opinfo", entry_names(dtype, only), {"dtype": dtype, **common}, shard, limit))
    if op_logs is not None:
        settings = common | {"file": None if op_logs == BUILT_IN else str(Path(op_logs).resolve())}
        names = _chosen(load_sweep("op-logs", settings).entries(), only)
        plans.append(Plan("op-logs", names, settings, shard, limit))
    return plans


def _chosen(names: list[str], only: list[str]) -> list[str]:
    """`names`, or those that `only` means: `aten.mm.default`, `mm.default` or `mm`."""
    if not only:
        return names
    chosen = []
    for wanted in only:
        found = [n for n in names if wanted in (n, short := n.removeprefix("aten."), short.rpartition(".")[0])]
        if not found:
            import difflib

            close = difflib.get_close_matches(wanted, [n.removeprefix("aten.") for n in names], 3)
            raise UserError(f"this sweep has no op {wanted!r}" + (f"; close: {', '.join(close)}" if close else ""))
        chosen += found
    return list(dict.fromkeys(chosen))


def _count(samples: str) -> int | None:
    if samples == "all":
        return None
    if not samples.isdecimal() or int(samples) < 1:
        raise UserError(f"--samples is a number from 1, or all, not {samples!r}")
    return int(samples)


def _shard(text: str) -> tuple[int, int]:
    """(part from 0, parts) of `I/N`."""
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise UserError(f"--shard is I/N with I from 1 to N, as 2/4, not {text!r}")
    return int(part) - 1, int(parts)


# ---------------------------------------------------------------------------------------------------------------------
# Running


def _sweep(plan: Plan, output: Path | None, resume: bool, jobs: int, again: list[str], retry: bool) -> bool:
    """Runs one sweep, writes and shows what it found; whether all is as expected."""
    from relaxgrad.coverage.harness.records import versions
    from relaxgrad.coverage.sweeps.check import GOOD
    from relaxgrad.coverage.sweeps.records import Records, forget

    if output is None:
        with tempfile.TemporaryDirectory() as folder:
            return _sweep(plan, Path(folder), False, jobs, [], False)
    path = output / f"{_file_name(plan)}.jsonl"
    if path.exists() and (again or retry):
        anew = set(_chosen(plan.entries, again)) if again else set()
        forget(path, lambda record: record["entry"] in anew or (retry and record["status"] not in GOOD))
    records = Records(path, {**plan.head(), "versions": versions()}, resume)
    try:
        _run(plan, records, jobs)
    except KeyboardInterrupt:
        _finish(plan, records, output)
        raise
    finally:
        records.close()
    return _finish(plan, records, output)


def _file_name(plan: Plan) -> str:
    """As `opinfo-float32-dynamic-2of4`."""
    settings, (part, parts) = plan.settings, plan.shard
    words = [plan.sweep, settings.get("dtype") or "", "dynamic" if settings["dynamic"] else ""]
    words.append(f"{part + 1}of{parts}" if parts > 1 else "")
    return "-".join(word for word in words if word)


def _run(plan: Plan, records: Records, jobs: int) -> None:
    """The sweep, with progress on stderr: a bar where it is a terminal, else a line for each sample that fails."""
    from collections import Counter

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from relaxgrad.coverage.sweeps.driver import run_sweep

    console = Console(stderr=True, emoji=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(plan.sweep, total=len(plan.entries) * jobs)
        statuses: Counter[str] = Counter()

        def listen(event: dict[str, Any]) -> None:
            if event["event"] == "begin":
                counts = ", ".join(f"{n} {status}" for status, n in statuses.most_common())
                progress.update(bar, description=f"{plan.sweep}: {event['entry']} ({counts or 'starting'})")
            elif event["event"] == "entry":
                progress.advance(bar)
            else:
                record = event["record"]
                statuses[record["status"]] += 1
                if record["status"] not in ("pass", "vacuous", "eager"):
                    line = (
                        f"{record['entry']} sample {record['sample']}: {record['status']}: {record.get('detail', '')}"
                    )
                    progress.console.print(line, highlight=False, markup=False, soft_wrap=True)

        run_sweep(plan, records, jobs, listen)


def _finish(plan: Plan, records: Records, output: Path) -> bool:
    """Summary to JSON, Markdown and stdout. False where a sample fails unexpectedly, or is expected to and passes."""
    from rich.console import Console

    from relaxgrad.coverage.harness.records import write_json
    from relaxgrad.coverage.sweeps.expected_failures import read_table, sort_out
    from relaxgrad.coverage.sweeps.records import read_records
    from relaxgrad.coverage.sweeps.summary import headline, markdown, summarise

    head, found = read_records(records.path)
    summary = summarise(head, found)
    write_json(records.path.with_suffix(".json"), summary)
    records.path.with_suffix(".md").write_text(markdown(summary))
    console = Console(highlight=False, markup=False, emoji=False)
    for line in headline(summary):
        console.print(line, soft_wrap=True)
    unexpected, stale = sort_out(head, found, read_table())
    _show_failures(console, unexpected)
    for row in stale:
        console.print(f"{row.entry} sample {row.sample} passes: take it out of expected_failures.tsv", soft_wrap=True)
    return not unexpected and not stale


def _show_failures(console: Console, failed: list[dict[str, Any]]) -> None:
    by_entry: dict[str, list[dict[str, Any]]] = {}
    for record in failed:
        by_entry.setdefault(record["entry"], []).append(record)
    for name, records in by_entry.items():
        first = records[0]
        more = f" (and {len(records) - 1} more samples)" if len(records) > 1 else ""
        text = f"{name} sample {first['sample']}: {first['status']}: {first.get('detail', '')}{more}"
        console.print(text, soft_wrap=True)


def _fuzz(count: int, seed: int, output: Path | None, limit: float) -> bool:
    """Runs the fuzzer, writes and shows what it found; whether it found nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from relaxgrad.coverage.harness.records import versions, write_json
    from relaxgrad.coverage.sweeps.fuzz import run_fuzz

    progress_console = Console(stderr=True, emoji=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=progress_console, transient=True, disable=not progress_console.is_terminal) as bars:
        bar = bars.add_task("fuzz", total=count)

        def listen(state: dict[str, Any]) -> None:
            bars.update(bar, completed=state["graphs"], description=f"fuzz ({state['failures']} failures)")

        result = run_fuzz(count, seed, limit, listen)
    console = Console(highlight=False, markup=False, emoji=False)
    failures, kinds = result["failures"], len(result["used"])
    console.print(f"{result['graphs']} random graphs of {kinds} kinds of line, seed {seed}: {len(failures)} failures.")
    for number, failure in enumerate(failures, 1):
        console.print(f"\n{failure['detail']}\n\n{failure['script']}", soft_wrap=True)
        if output is not None:
            (output / f"fuzz-{seed}-{number}.py").write_text(failure["script"])
    if output is not None:
        write_json(output / f"fuzz-{seed}.json", {"schema": 1, "versions": versions(), **result})
    return not failures
