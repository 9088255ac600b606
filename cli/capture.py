# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad capture`: prints the training graph of a model with the meaning of its inputs and outputs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaxgrad.bridge.errors import UserError

if TYPE_CHECKING:
    from relaxgrad.bridge.schemas import CapturedGraph
    from relaxgrad.coverage.sample_graphs import Found


class GraphChoice(StrEnum):
    """Which graph of a training step."""

    JOINT = "joint"
    FORWARD = "forward"
    BACKWARD = "backward"
    FUSED = "fused"  # the groups of the forward and backward graphs that become one kernel each


class Format(StrEnum):
    """What is saved."""

    SAMPLE = "sample"
    ONNX = "onnx"


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
        typer.Option(
            help="The joint graph; the forward or backward graphs that torch.compile makes; the groups of their nodes "
            "that fuse into one kernel."
        ),
    ] = GraphChoice.JOINT,
    decompose: Annotated[
        Decomposition, typer.Option(help="Decomposition table: core ATen with relaxgrad's additions, or none.")
    ] = Decomposition.CORE_ATEN,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="Make the sizes of the inputs symbols.")] = False,
    saved_as: Annotated[
        Format,
        typer.Option(
            "--format", help="With -o: a sample to replay, or model.onnx as well, for Netron and onnxruntime."
        ),
    ] = Format.SAMPLE,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="Save graph.txt, signature.json, ops.json and, to replay, sample.json and tensors.bin.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print the training graph of a model: what inputs and outputs mean, each call with its source line, op counts.

    The model is captured in train mode, with its loss. Exit code 2: no such model, or one that cannot be captured.
    """
    if output is not None and output.exists() and not output.is_dir():
        raise UserError(f"-o {output} is a file; name a directory")
    if saved_as is Format.ONNX and (output is None or dynamic):
        raise UserError("--format onnx needs -o DIR, and takes no --dynamic")
    captures = _capture(model, graph, decompose.value, dynamic)
    from relaxgrad.bridge.capture import render, save

    for number, found in enumerate(captures, 1):
        captured, name, inputs = found.graph, found.part, found.inputs
        if len(captures) > 1:
            typer.echo(f"graph {number} of {len(captures)}" + (f": {name}" if graph is GraphChoice.FUSED else _BREAKS))
        typer.echo(render(captured))
        if output is None:
            continue
        folder = output if len(captures) == 1 else output / (name or f"{graph}-{number}")
        try:
            save(captured, folder)
            if inputs is not None:
                from relaxgrad.coverage import samples

                samples.save(captured, inputs, folder, name)
                if saved_as is Format.ONNX:
                    _export(captured, inputs, folder / "model.onnx")
        except OSError as error:
            raise UserError(f"cannot write to {folder}: {error.strerror or error}; name another directory") from error
        typer.echo(f"saved in {folder}" + ("" if inputs is not None else ", without values to replay"), err=True)


def _export(captured: CapturedGraph, inputs: list[Any], path: Path) -> None:
    """Writes the graph as ONNX, checked. Raises UserError, with the op, where ONNX cannot express it."""
    import onnx

    from relaxgrad.coverage import onnx_path
    from relaxgrad.coverage.harness.models import describe
    from relaxgrad.coverage.harness.records import write_bytes

    try:
        model = onnx_path.export(captured, inputs)
        onnx.checker.check_model(model)
    except UserError:
        raise
    except Exception as error:
        ops = ", ".join(onnx_path.lacking(error))
        what = f"{ops} has no form in ONNX" if ops else describe(error)
        raise UserError(f"this {captured.kind} graph cannot be written as ONNX: {what}") from error
    write_bytes(path, model.SerializeToString())


_BREAKS = " (the module has graph breaks)"


def _capture(model: str, graph: GraphChoice, decompose: str, dynamic: bool) -> list[Found]:
    from relaxgrad.coverage.harness.models import check_name, load_problem

    check_name(model)  # at once: the next line imports torch
    from relaxgrad.coverage.sample_graphs import fused_graphs, joint_graph, step_graphs

    problem = load_problem(model)
    if graph is GraphChoice.JOINT:
        return [joint_graph(problem, decompose, dynamic)]
    if graph is GraphChoice.FUSED and dynamic:
        raise UserError("--graph fused takes no --dynamic: its samples hold values")
    pair = step_graphs(problem, decompose, dynamic)
    if graph is GraphChoice.FUSED:
        return fused_graphs(pair)
    if found := [one for one in pair if one.graph.kind.value == graph.value]:
        return found
    kinds = ", ".join(sorted({one.graph.kind for one in pair}))
    raise UserError(
        f"{model} has no {graph} graph, only {kinds}: its output needs no gradient; "
        "check for detach, no_grad and requires_grad=False"
    )
