"""`relaxgrad report`: what measurements come to. So far `report merge`: the audits of several machines as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Reports from stored measurements.")


@app.callback()
def _group() -> None:
    """Makes `merge` a command of a group even while it is the only one."""


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
