# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad replay`: runs a graph sample again, and compares what comes out with what it says."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Backend(StrEnum):
    """What runs the sample."""

    EAGER = "eager"
    RELAXGRAD = "relaxgrad"
    INDUCTOR = "inductor"


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of `relaxgrad capture MODEL -o DIR`.")],
    backend: Annotated[Backend, typer.Option(help="What runs the graph.")] = Backend.EAGER,
) -> None:
    """Run a graph sample and compare every output with the one that was saved.

    In eager with the torch and the kind of CPU that made it, outputs are bit-equal. A compiler's are validated by the
    float64 rule where they are not. Exit code 0: all are equal, or right. 1: one is not. 2: no sample, or one that is
    refused.
    """
    from relaxgrad.bridge.errors import RelaxgradError
    from relaxgrad.coverage import samples
    from relaxgrad.coverage.sample_graphs import verdicts as validate

    loaded = samples.load(folder)
    sample = loaded.sample
    try:
        results = samples.replay(loaded, backend.value)
    except Exception as error:  # whatever a backend raises is the finding
        raise RelaxgradError(f"{backend} cannot run {folder}: {type(error).__name__}: {error}") from error
    verdicts = validate(loaded, results, backend.value)
    wrong = "wrong" if backend is not Backend.EAGER else "not the bits that were saved"
    for result, verdict in zip(results, verdicts, strict=True):
        typer.echo(f"{result.role} {result.target}".rstrip() + f": {verdict or wrong}")
    equal = sum(result.equal and result.layout for result in results)
    what = sample.kind + (f", {sample.part}" if sample.part else "")
    made_by = f"; saved with torch {sample.torch}" if equal < len(results) else ""
    typer.echo(f"{what}: {equal} of {len(results)} outputs bit-equal on {backend}{made_by}")
    if not all(verdicts):
        raise typer.Exit(1)
