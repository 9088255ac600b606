# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad compile`: a model's training graphs as code for a device that need not be there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A zoo name, path/to/file.py:factory, or package.module:factory.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Write the code here.")],
    target: Annotated[
        str, typer.Option(help="What to compile for: cuda:sm_80, cuda:sm_90, cuda:sm_100, llvm:CPU.")
    ] = "cuda:sm_90",
    dynamic: Annotated[bool, typer.Option("--dynamic", help="Make the sizes of the inputs symbols.")] = False,
    source_only: Annotated[bool, typer.Option("--source-only", help="No machine code, which needs nvcc.")] = False,
) -> None:
    """Compile the forward and backward graphs of a model's training step for a target, and run nothing there.

    DIR gets, for each graph, its kernels as source and as machine code, and kernels.json: what each kernel takes of a
    multiprocessor, and what falls back to PyTorch and why. Graphs are captured on the host. Exit code 1: a graph does
    not compile; 2: no such model or target.
    """
    from relaxgrad.coverage.harness.models import check_name

    check_name(model)  # at once: what follows imports torch
    from relaxgrad.bridge.capture import capture_pair
    from relaxgrad.bridge.compile.cross import cross_compile
    from relaxgrad.bridge.errors import last_line
    from relaxgrad.bridge.targets import kinds, resolve_target
    from relaxgrad.coverage.harness.models import load_problem
    from relaxgrad.coverage.harness.records import check_writable, write_bytes, write_json, write_text

    resolved = resolve_target(target, to_run=False)
    device = kinds()[resolved.kind.name]
    output.mkdir(parents=True, exist_ok=True)
    check_writable(output / "kernels.json")
    problem = load_problem(model)
    loss = problem.loss if problem.compile_loss else None
    graphs = capture_pair(problem.module, problem.args, problem.kwargs, loss=loss, dynamic=dynamic)
    rows: list[dict[str, Any]] = []
    for number, graph in enumerate(graphs):
        name = f"{number}-{graph.kind.value}"
        row: dict[str, Any] = {"graph": name, "target": target}
        rows.append(row)
        try:
            found = cross_compile(graph, device, resolved)
            row["calls"] = {str(kind): count for kind, count in found.calls.items()}
            row["reasons"] = [str(reason) for reason in found.reasons]
            write_text(output / f"{name}.{device.suffix}", found.source)
            made = None if source_only or not found.source else device.assemble(found.source, resolved)
            if made is not None:
                write_bytes(output / f"{name}.bin", made[0])
                row["bytes"] = len(made[0])
                row["kernels"] = {kernel: vars(usage) for kernel, usage in made[1].items()}
        except RuntimeError as error:
            row["error"] = f"{type(error).__name__}: {last_line(error)}"
        typer.echo(_line(row))
    write_json(output / "kernels.json", rows)
    typer.echo(f"{output}/kernels.json: compiled for {target}, not run there")
    if any("error" in row for row in rows):
        raise typer.Exit(1)


def _line(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['graph']}: {row['error']}"
    calls = ", ".join(f"{count} {kind}" for kind, count in sorted(row["calls"].items()))
    kernels = list(row.get("kernels", {}).values())
    if not kernels:
        return f"{row['graph']}: {calls}"
    registers, spilled = max(k["registers"] for k in kernels), sum(k["spilled"] > 0 for k in kernels)
    return (
        f"{row['graph']}: {calls}; {len(kernels)} kernels in {row['bytes']} bytes, "
        f"up to {registers} registers, {spilled} that spill"
    )
