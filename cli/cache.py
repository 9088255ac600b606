# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad cache`: the compiled graphs that are kept on disk."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated

import typer

from relaxgrad.bridge.errors import RelaxgradError

app = typer.Typer(no_args_is_help=True, help="The compiled graphs that are kept on disk.")

_MIB = 2**20


@app.command("info")
def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say where compiled graphs are kept, how many there are, and how much room they take."""
    from relaxgrad.bridge.compile.cache import folder as cache_folder
    from relaxgrad.bridge.compile.cache import link as cache_link

    folder = cache_folder.Folder(cache_folder.location())
    entries, limit = folder.entries(), cache_folder.limit()
    size = sum(e.size for e in entries)
    oldest = entries[0].used if entries else None
    linker = cache_link.linker()
    if as_json:
        found = {
            "folder": str(folder.path),
            "enabled": cache_folder.enabled(),
            "linker": linker[0] if linker else None,
            "entries": len(entries),
            "bytes": size,
            "limit": limit,
            "oldest_use": oldest,
        }
        typer.echo(json.dumps(found, indent=2))
        return
    typer.echo(f"{folder.path}: {_graphs(len(entries))}, {size / _MIB:.1f} MiB of {limit / _MIB:.0f} MiB")
    if oldest is not None:
        typer.echo(f"not used for longest: since {datetime.fromtimestamp(oldest):%Y-%m-%d %H:%M}")
    if not cache_folder.enabled():
        typer.echo("turned off by RELAXGRAD_CACHE")
    if linker is None:
        typer.echo("nothing can be added: there is no linker (ld, gcc or clang) on PATH")


@app.command("clear")
def clear() -> None:
    """Remove every compiled graph, and what was measured of this machine. Running processes keep what they have."""
    from relaxgrad.bridge.compile.cache.folder import Folder, location
    from relaxgrad.bridge.devices.cpu import gemm_autotuning

    folder = Folder(location())
    try:
        removed = folder.clear()
        gemm_autotuning.forget()
    except OSError as error:
        raise RelaxgradError(f"{error.filename} cannot be removed: {error.strerror}") from None
    size = sum(entry.size for entry in removed)
    typer.echo(f"{folder.path}: removed {_graphs(len(removed))}, {size / _MIB:.1f} MiB")


def _graphs(count: int) -> str:
    return f"{count} compiled graph{'' if count == 1 else 's'}"
