"""A graph's way through the passes, kept at every step: for people who want to look. Compiles each kernel alone."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import tvm
from tvm import relax, tirx

from ..importer.kernel import LIBRARY_CALL
from ..importer.translate import translate
from ..kinds import Kind
from ..schemas import CapturedGraph
from . import intrinsics
from .pipeline import passes
from .selects import keep_selects
from .target import resolve_target

#: Characters of a kernel's LLVM IR that are kept.
LONGEST = 20_000


@dataclass(frozen=True)
class KernelTrace:
    """One kernel of a graph."""

    name: str
    kind: Kind
    tir: str  # TVMScript, scheduled
    llvm: str  # LLVM IR of its function; empty where LLVM did not compile it alone


@dataclass(frozen=True)
class Trace:
    """What became of a graph."""

    mains: list[tuple[str, str]]  # pass -> Relax's `main` after it, where the pass changed it; first the translation
    kernels: list[KernelTrace]
    seconds: float


def traced(captured: CapturedGraph, target: str = "llvm") -> Trace:
    """Runs the passes of the pipeline on a graph. Raises what translation and TVM raise."""
    start = time.perf_counter()
    resolved = resolve_target(target)
    module = translate(captured).module
    mains = [("translated", _main(module))]
    kernels: dict[str, tirx.PrimFunc] = {}
    with intrinsics.in_use(), resolved:
        for step in passes(resolved):
            module = step(module)
            name = str(step.info.name)
            text = _main(module)
            if text != mains[-1][1]:
                mains.append((f"after {name}", text))
            if name == "ScheduleKernels":
                kernels = {v.name_hint: f for v, f in module.functions.items() if isinstance(f, tirx.PrimFunc)}
        found = [_kernel(name, function, resolved) for name, function in kernels.items()]
    return Trace(mains, found, time.perf_counter() - start)


def _main(module: tvm.IRModule) -> str:
    (main,) = (f for v, f in module.functions.items() if v.name_hint == "main" and isinstance(f, relax.Function))
    return str(main.script(show_meta=False))


def _kernel(name: str, function: tirx.PrimFunc, target: tvm.target.Target) -> KernelTrace:
    library = LIBRARY_CALL in (function.attrs or {})
    tir = str(function.script())
    try:
        alone = tvm.IRModule({name: function.with_attr("global_symbol", name)})
        built = tvm.compile(intrinsics.link()(keep_selects()(alone)), target=target)
        llvm = _of_function(built.mod.inspect_source("ll"), name)
    except Exception:  # a listing less
        llvm = ""
    return KernelTrace(name, Kind.LIBRARY if library else Kind.NATIVE, tir, llvm)


def _of_function(text: str, name: str) -> str:
    """The functions of a module that compute, without TVM's checks of arguments, declarations and debug lines."""
    parts = re.findall(r"^define [^\n]*\n.*?^}\n", text, re.MULTILINE | re.DOTALL)
    chosen = [p for p in parts if "compute" in p.splitlines()[0] or "lambda" in p.splitlines()[0]] or parts
    lines = [re.sub(r", !(dbg|tbaa|prof) !\d+", "", line) for part in chosen for line in part.splitlines()]
    found = "\n".join(line for line in lines if "#dbg_" not in line)
    return found if len(found) <= LONGEST else f"{found[:LONGEST]}\n; ... {len(found) - LONGEST} characters more"
