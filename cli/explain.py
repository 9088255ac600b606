# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad explain`: one model's way through the stack, on a page or in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A zoo name, path/to/file.py:factory, or package.module:factory.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the page to FILE.", show_default=False),
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(
            "--stage",
            metavar="NAME",
            help="Only this stage, printed: source, dynamo, joint, decomposed, partition, relax, fusion, kernels. May "
            "be given several times.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Explain what becomes of a model: its source, Dynamo's graph, the joint graph with each backward node beside the
    forward node that it differentiates, the decomposition, the partition, Relax pass by pass, fusion, and each kernel.

    Without -o and --stage: a line for each stage. Exit code 2: no such model or stage, or one that cannot be captured.
    """
    from relaxgrad.coverage.harness.models import check_name, load_problem

    check_name(model)  # at once: what follows imports torch
    from relaxgrad.coverage.harness.records import check_writable, write_text
    from relaxgrad.reports.explain.page import page, plain
    from relaxgrad.reports.explain.stages import NAMES, stages

    if output is not None:
        check_writable(output)
    found = stages(lambda: load_problem(model), stage or NAMES)
    if output is not None:
        write_text(output, page(model, found))
        typer.echo(f"{output}: {len(found)} stages")
    if stage:
        typer.echo("\n".join(plain(s) for s in found))
    elif output is None:
        for s in found:
            typer.echo(f"{s.name}: {s.title}: {s.numbers}")
        typer.echo("`--stage NAME` prints one, `-o page.html` writes all")
