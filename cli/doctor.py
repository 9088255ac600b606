# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad doctor`: versions, what this machine compiles and runs, and whether torch still has what we stand on."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated

import typer

from relaxgrad.bridge import __version__

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SCHEMA = 1  # of the JSON; raised when a key changes its meaning or goes away
PACKAGES = {"torch": "torch", "tvm": "apache-tvm", "transformers": "transformers"}
TOOLS = ("g++", "nvcc")
TARGETS = ("llvm", "cuda")


@dataclass(frozen=True)
class Check:
    """One thing tried, and what came of it."""

    name: str
    ok: bool
    detail: str
    used_for: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class TargetReport:
    """Whether a tiny kernel compiled for a target, and whether code for it runs here."""

    name: str
    compile: Check
    run: Check


@dataclass(frozen=True)
class Cpu:
    """The CPU: how the system and how LLVM name it, and its vector features, LLVM's names."""

    model: str
    llvm_name: str
    cores: int
    features: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()  # features of such a CPU that this machine hides; switched off


@dataclass
class Diagnosis:
    """All that `doctor` found. `versions` has None for what is not installed."""

    versions: dict[str, str | None]
    cpu: Cpu
    targets: list[TargetReport]
    torch_api: list[Check]
    training_step: Check  # one training step through torch.compile(backend="relaxgrad")
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        return {"schema": SCHEMA, "ok": not self.problems, **asdict(self)}


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def _package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _tool_version(name: str) -> str | None:
    """The line of `NAME --version` that holds the version, or None when the tool is not on PATH or does not run."""
    path = shutil.which(name)
    if path is None:
        return None
    try:
        run = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = [line.strip() for line in run.stdout.splitlines() if line.strip()]
    release = [line for line in lines if "release" in line.lower()]  # nvcc says it on its fourth line
    return (release or lines or ["unknown"])[0]


def versions() -> dict[str, str | None]:
    """Versions of the packages and tools, without importing or building anything."""
    found: dict[str, str | None] = {"python": platform.python_version(), "relaxgrad": __version__}
    found |= {label: _package_version(package) for label, package in PACKAGES.items()}
    return found | {tool: _tool_version(tool) for tool in TOOLS}


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def examine_cpu() -> Cpu:
    """The CPU. Where TVM cannot be asked, LLVM's name is `unknown`: the target checks say why."""
    from relaxgrad.bridge.devices.cpu.host import host_cpu
    from relaxgrad.bridge.forked import cores

    try:
        host = host_cpu()
        return Cpu(_cpu_model(), host.name, host.cores, host.features, host.hidden)
    except Exception:
        return Cpu(_cpu_model(), "unknown", cores())


def examine_target(name: str) -> TargetReport:
    """Compiles a tiny kernel for `name` and asks whether it runs here."""
    from relaxgrad.bridge import targets

    compiled = targets.probe_compile(name)
    try:
        runs, why = targets.can_run(name)
    except Exception as error:
        runs, why = False, _first_line(error)
    return TargetReport(
        name,
        Check("compile", compiled.ok, compiled.detail, seconds=compiled.seconds),
        Check("run", runs and compiled.ok, why),
    )


def examine_torch_api() -> list[Check]:
    """Exercises each private torch name that the bridge uses."""
    try:
        from relaxgrad.bridge import torch_api

        probes = torch_api.probe_all()
        if not probes:
            raise RuntimeError("no probe is registered")
        return [Check(p.name, p.ok, p.detail, p.used_for) for p in probes]
    except Exception as error:
        return [Check("relaxgrad.bridge.torch_api", False, _first_line(error), "every private torch name")]


def examine_training_step() -> Check:
    """One training step of `relu(x @ w + b)` through torch.compile(backend="relaxgrad"), gradients against eager's."""
    name, start = "training step", time.perf_counter()
    try:
        detail = _train_once()
        ok = True
    except Exception as error:
        ok, detail = False, _first_line(error)
    return Check(name, ok, detail, 'torch.compile(model, backend="relaxgrad")', round(time.perf_counter() - start, 3))


def _train_once() -> str:
    import torch

    from relaxgrad.bridge.backend import record_graphs
    from relaxgrad.bridge.schemas import GraphKind

    generator = torch.Generator().manual_seed(0)
    x, w, b = (torch.randn(shape, generator=generator) for shape in ((4, 4), (4, 4), (4,)))

    def step(function: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        parameters = [w.clone().requires_grad_(), b.clone().requires_grad_()]
        function(x, *parameters).square().sum().backward()
        gradients = [p.grad for p in parameters if p.grad is not None]
        if len(gradients) != len(parameters):
            raise RuntimeError("a gradient is missing")
        return gradients

    def model(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w + b)

    torch.compiler.reset()
    # fullgraph: a graph that Dynamo cannot trace is an error here, not a silent run in eager
    with record_graphs() as graphs:
        compiled = step(torch.compile(model, backend="relaxgrad", fullgraph=True))
    for graph in graphs:
        if graph.reasons:
            raise RuntimeError(f"the {graph.kind} graph fell back to ATen: {graph.reasons[0]}")
    ran = {graph.kind for graph in graphs if graph.runs}
    if ran != {GraphKind.FORWARD, GraphKind.BACKWARD}:
        raise RuntimeError(f"of the forward and the backward graph there ran: {', '.join(sorted(ran)) or 'none'}")
    kernels = sum(graph.kernels for graph in graphs)
    if not kernels:
        raise RuntimeError("TVM generated no kernel")
    worst = max(float((a - e).abs().max()) for a, e in zip(compiled, step(model), strict=True))
    if not worst <= 1e-5:
        raise RuntimeError(f"gradients differ from eager's by {worst:.1e}")
    return f"forward and backward ran with {kernels} TVM kernels; gradients within {worst:.1e} of eager's"


def diagnose(progress: Callable[[str], None] = lambda what: None) -> Diagnosis:
    """Runs every check, naming each to `progress` before it starts. Never raises for what a check finds."""
    progress("versions")
    found = versions()
    progress("the CPU")
    cpu = examine_cpu()
    targets = []
    for name in TARGETS:
        progress(f"target {name}")
        targets.append(examine_target(name))
    progress("torch's private names")
    torch_api = examine_torch_api()
    progress("a training step")
    result = Diagnosis(found, cpu, targets, torch_api, examine_training_step())
    result.problems = _problems(result)
    return result


def _problems(diagnosis: Diagnosis) -> list[str]:
    """What keeps the llvm path from working, one line each; a missing GPU or nvcc is none."""
    lines = [f"{name} is not installed" for name in ("torch", "tvm") if diagnosis.versions[name] is None]
    for target in diagnosis.targets:
        if target.name == "llvm":
            lines += [f"target llvm, {c.name}: {c.detail}" for c in (target.compile, target.run) if not c.ok]
    lines += [f"torch's {c.name} ({c.used_for}): {c.detail}" for c in diagnosis.torch_api if not c.ok]
    if not diagnosis.training_step.ok:
        lines.append(f"{diagnosis.training_step.name}: {diagnosis.training_step.detail}")
    return lines


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _mark(ok: bool) -> str:
    return "[green]yes[/]" if ok else "[red]no[/]"


def show(diagnosis: Diagnosis, console: Console) -> None:
    """Prints the diagnosis as tables."""
    from rich.markup import escape

    table = _table("versions", "")
    for name, found in diagnosis.versions.items():
        table.add_row(name, escape(found) if found else "[yellow]not found[/]")
    cpu = diagnosis.cpu
    table.add_row("CPU", escape(f"{cpu.model} (LLVM: {cpu.llvm_name}), {cpu.cores} cores"))
    table.add_row("CPU features", " ".join(cpu.features) or "unknown")
    if cpu.hidden:
        table.add_row("switched off", " ".join(cpu.hidden) + " (this machine hides them)")
    console.print(table)

    table = _table("target", "compiles", "runs", "")
    for target in diagnosis.targets:
        detail = f"{target.compile.detail}; {target.run.detail}"
        table.add_row(target.name, _mark(target.compile.ok), _mark(target.run.ok), escape(detail))
    console.print()
    console.print(table)

    table = _table("private torch name", "works", "used for", "")
    for check in diagnosis.torch_api:
        table.add_row(escape(check.name), _mark(check.ok), escape(check.used_for), escape(check.detail))
    console.print()
    console.print(table)

    training_step = diagnosis.training_step
    console.print()
    console.print(
        f"{training_step.name}: {_mark(training_step.ok)}, {escape(training_step.detail)} "
        f"({training_step.seconds:.1f} s)",
        highlight=False,
    )
    console.print()
    if diagnosis.problems:
        console.print("[red]Training on llvm does not work here:[/]")
        for line in diagnosis.problems:
            console.print(f"  {escape(line)}", highlight=False)
    else:
        console.print("[green]Training on llvm works here.[/]")


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the diagnosis as JSON on stdout.")] = False,
) -> None:
    """Check this machine: versions, targets, private torch names, a training step. Exit 0 if training on llvm works."""
    from rich.console import Console

    with Console(stderr=True).status("checking") as status:
        diagnosis = diagnose(lambda what: status.update(f"checking {what}"))
    if as_json:
        typer.echo(json.dumps(diagnosis.to_json(), indent=2))
    else:
        show(diagnosis, Console())
    raise typer.Exit(1 if diagnosis.problems else 0)
