"""`relaxgrad capture`: prints the training graph of a model with the meaning of its inputs and outputs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relaxgrad.bridge.errors import UserError

if TYPE_CHECKING:
    from relaxgrad.bridge.schemas import CapturedGraph


class GraphChoice(StrEnum):
    """Which graph of a training step."""

    JOINT = "joint"
    FORWARD = "forward"
    BACKWARD = "backward"


class Decomposition(StrEnum):
    """Names of the decomposition tables."""

    CORE_ATEN = "core_aten"
    NONE = "none"


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A zoo name, path/to/file.py:factory, or package.module:factory.")
    ],
    graph: Annotated[
        GraphChoice,
        typer.Option(help="The joint graph, or the forward or backward graphs that torch.compile makes."),
    ] = GraphChoice.JOINT,
    decompose: Annotated[
        Decomposition, typer.Option(help="Decomposition table: core ATen with relaxgrad's additions, or none.")
    ] = Decomposition.CORE_ATEN,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="Make the sizes of the inputs symbols.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="DIR", help="Save graph.txt, signature.json and ops.json.", show_default=False
        ),
    ] = None,
) -> None:
    """Print the training graph of a model: what inputs and outputs mean, each call with its source line, op counts.

    The model is captured in train mode, with its loss. Exit code 2: no such model, or one that cannot be captured.
    """
    if output is not None and output.exists() and not output.is_dir():
        raise UserError(f"-o {output} is a file; name a directory")
    graphs = _capture(model, graph, decompose.value, dynamic)
    from relaxgrad.bridge.capture import render, save

    for number, captured in enumerate(graphs, 1):
        if len(graphs) > 1:
            typer.echo(f"graph {number} of {len(graphs)} (the module has graph breaks)")
        typer.echo(render(captured))
        if output is None:
            continue
        folder = output if len(graphs) == 1 else output / f"{graph}-{number}"
        try:
            save(captured, folder)
        except OSError as error:
            raise UserError(f"cannot write to {folder}: {error.strerror or error}; name another directory") from error
        typer.echo(f"saved in {folder}", err=True)


def _capture(model: str, graph: GraphChoice, decompose: str, dynamic: bool) -> list[CapturedGraph]:
    from relaxgrad.bridge.capture import capture_joint, capture_pair
    from relaxgrad.coverage.models import load_problem

    problem = load_problem(model)
    loss = problem.loss if problem.compile_loss else None
    if graph is GraphChoice.JOINT:
        arguments = (problem.module, problem.args, problem.kwargs)
        return [capture_joint(*arguments, loss=loss, decompose=decompose, dynamic=dynamic)]
    pair = capture_pair(problem.module, problem.args, problem.kwargs, loss=loss, decompose=decompose, dynamic=dynamic)
    found = [captured for captured in pair if captured.kind.value == graph.value]
    if not found:
        kinds = ", ".join(sorted({captured.kind.value for captured in pair}))
        raise UserError(
            f"{model} has no {graph} graph, only {kinds}: its output needs no gradient; "
            "check for detach, no_grad and requires_grad=False"
        )
    return found
