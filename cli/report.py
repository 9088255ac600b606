# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad report`: the feasibility report of models; `report diff` of two reports, `report merge` of audits."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from relaxgrad.bridge.errors import UserError

MAKE = "models"  # the command that `relaxgrad report MODEL...` stands for


class _WithDefault(TyperGroup):
    """A group whose first argument may be something else than a command of it: then it is an argument of MAKE."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = [MAKE, *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help of the group, with the arguments and options of MAKE, which may be given without naming it."""
        own, self.params = self.params, [*self.commands[MAKE].params]
        try:
            super().format_help(ctx, formatter)
        finally:
            self.params = own


app = typer.Typer(
    cls=_WithDefault,
    help="The feasibility report: can these models train on TVM, how fast, and what is missing?\n\n"
    "`relaxgrad report [MODEL...|--zoo NAME] -o DIR` makes one, as `relaxgrad report models` does.",
)


@app.command(MAKE)
def models(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL...", help="Zoo names, path/to/file.py:factory, or package.module:factory."),
    ] = None,
    zoo: Annotated[
        str | None,
        typer.Option("--zoo", metavar="NAME", help="Models of the zoo; a dozen by default.", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Of the report's files.")] = Path("out"),
    against: Annotated[str, typer.Option(metavar="NAME,...", help="Baselines of the timed steps.")] = "inductor,eager",
    bench: Annotated[bool, typer.Option("--bench/--no-bench", help="Time the steps of the models that train.")] = True,
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds of the timed steps.")] = 7,
    jobs: Annotated[int, typer.Option(min=1, help="Models that are audited at a time; timed is one at a time.")] = 2,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the audit that DIR has.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of parameters, inputs and dropout.")] = 0,
    time_limit: Annotated[float, typer.Option(min=1, help="Seconds for one model's audit, or one answer.")] = 600.0,
) -> None:
    """Audit, train and time models, and write report.json, report.md and report.html into DIR.

    Exit code 0: all models train on TVM. 1: one does not; the report says why. 2: bad usage.
    """
    from rich.console import Console

    from relaxgrad.benchmarks.names import parse_against
    from relaxgrad.benchmarks.record import Settings
    from relaxgrad.coverage.audit.auditor import AuditOptions
    from relaxgrad.coverage.harness.records import check_writable, write_text
    from relaxgrad.coverage.zoo import REPORTED
    from relaxgrad.reports.feasibility import collect
    from relaxgrad.reports.feasibility.html import html
    from relaxgrad.reports.feasibility.markdown import headline, markdown, short
    from relaxgrad.reports.feasibility.schema import Answer

    from .audit_models import audited, chosen

    if output.exists() and not output.is_dir():
        raise UserError(f"-o {output} is a file; name a folder")
    wanted = chosen(names or ([] if zoo else list(REPORTED)), zoo)
    settings = Settings(parse_against(against), rounds=rounds, seed=seed)
    output.mkdir(parents=True, exist_ok=True)
    check_writable(output / "report.json")
    records = audited(wanted, AuditOptions(seed, time_limit=time_limit), output, resume, jobs)
    timed: list[dict[str, Any]] = []
    if bench:
        console = Console(stderr=True, emoji=False, highlight=False, markup=False)
        trained = [record["model"] for record in records if record["verdict"] != "does not train"]
        with console.status("") as status:
            timed = collect.bench_models(trained, settings, output, time_limit, status.update)
    command = f"relaxgrad report {shlex.join(_arguments(sys.argv[1:]))}"
    report = collect.gather(output, wanted, timed, settings, [command])
    for file, text in (("json", report.text()), ("md", markdown(report)), ("html", html(report))):
        write_text(output / f"report.{file}", text)
    for model in report.models:
        typer.echo(short(model))
    typer.echo(headline(report))
    typer.echo(f"{output / 'report.html'}, report.md and report.json beside it")
    if any(model.answer in (Answer.NO, Answer.UNDECIDED) for model in report.models):
        raise typer.Exit(1)


def _arguments(given: list[str]) -> list[str]:
    """What stood after `report` on the command line."""
    return given[given.index("report") + 1 :] if "report" in given else []


@app.command("diff")
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A folder of a report, or its report.json.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The later one.")],
) -> None:
    """Say what changed between two reports, the worse things first.

    Exit code 0: nothing got worse. 1: something did. 2: a file that is no report.
    """
    from relaxgrad.reports.feasibility.diff import changes
    from relaxgrad.reports.feasibility.schema import read

    found = changes(read(old), read(new))
    for change in found:
        typer.echo(str(change))
    if not found:
        typer.echo("nothing changed")
    if any(change.worse for change in found):
        raise typer.Exit(1)


@app.command("merge")
def merge(
    audits: Annotated[
        list[Path], typer.Argument(metavar="AUDIT...", help="Folders of `relaxgrad audit -o`, or their audit.jsonl.")
    ],
    output: Annotated[Path, typer.Option("-o", metavar="FILE", help="The merged audit.jsonl.")],
) -> None:
    """Merge the audits of several machines. For a model that more than one has, the last one named counts.

    They must have been made with the same settings and versions, or the rows would not be comparable.
    """
    from relaxgrad.coverage.audit.many import FILE
    from relaxgrad.coverage.audit.many import merge as merged
    from relaxgrad.coverage.sweeps.records import write_records

    head, records = merged([path / FILE if path.is_dir() else path for path in audits])
    write_records(output, head, records)
    typer.echo(f"{output}: {len(records)} models of {len(audits)} audit{'s' if len(audits) != 1 else ''}")
