# SPDX-License-Identifier: Apache-2.0
"""A graph's way through the passes, kept at every step: for people who want to look. Compiles each kernel alone."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import tvm
from tvm import relax, tirx

from ...attributes import LIBRARY_CALL
from ...device import Device
from ...importer.state import Options
from ...importer.translate import translate
from ...kinds import Kind
from ...plan import Translation
from ...schemas import CapturedGraph
from ...targets import AUTO, resolve_target
from ..passes import lowering
from ..passes.in_place import before_in_place
from ..pipeline import listing, run_passes

FUSION = "FuseOps"  # the pass that chooses what becomes one kernel
HORIZONTAL_FUSION = "FuseHorizontally"  # and the one that puts such kernels together
#: Characters of a kernel's generated code that a page keeps.
LONGEST = 20_000


@dataclass(frozen=True)
class KernelTrace:
    """One kernel of a graph."""

    name: str
    kind: Kind
    tir: str  # TVMScript, scheduled
    code: str  # of its function, as `Device.listing` says; empty where it did not compile alone


@dataclass(frozen=True)
class Trace:
    """What became of a graph."""

    mains: list[tuple[str, str]]  # pass -> Relax's `main` after it, where the pass changed it; first the translation
    groups: dict[str, list[str]]  # kernel -> the nodes that it computes, where they are several
    kernels: list[KernelTrace]  # none where no code was asked for
    seconds: float
    translation: Translation  # of which the first of `mains` is a part


def traced(
    captured: CapturedGraph,
    target: str = AUTO,
    options: Options | None = None,
    code: bool = True,
    longest: int = LONGEST,
) -> Trace:
    """Runs the passes of the pipeline on a graph, and compiles each kernel unless `code` is False: then there are none.

    `longest`: characters of a kernel's generated code that are kept. Raises what translation and TVM raise.
    """
    start = time.perf_counter()
    device = captured.device
    resolved = resolve_target(target, device)
    translation = translate(captured, replace(options or Options(), tuned=device.tuned(captured.module)))
    mains = [("translated", _main(translation.module))]
    groups: dict[str, list[str]] = {}
    kernels: dict[str, tirx.PrimFunc] = {}

    def observe(name: str, module: tvm.IRModule) -> None:
        text = _main(module)
        if text != mains[-1][1]:
            mains.append((f"after {name}", text))
        if name in (FUSION, HORIZONTAL_FUSION):
            members = translation.kernels | {kernel: set(nodes) for kernel, nodes in groups.items()}
            found = _fused(module, translation, members)
            groups.update({kernel: nodes for kernel, nodes in found if len(nodes) > 1})
        if name in ("ScheduleKernels", "WriteInPlace"):
            kernels.clear()
            kernels.update({v.name_hint: f for v, f in module.functions.items() if isinstance(f, tirx.PrimFunc)})

    with device.lowering(), resolved:
        run_passes(translation.module, device, resolved, observe)
        found = [_kernel(*kernel, device, resolved, longest) for kernel in kernels.items()] if code else []
    there = {kernel: groups[base] for kernel in kernels if (base := before_in_place(kernel)) in groups}
    return Trace(mains, there, found, time.perf_counter() - start, translation)


def fusion_of(translation: Translation, device: Device, target: str = AUTO) -> list[tuple[str, list[str]]]:
    """(kernel, its nodes) of every kernel that fusion makes of a translation. Raises what TVM raises."""
    resolved = resolve_target(target, device)
    with device.lowering(), resolved:
        return _fused(run_passes(translation.module, device, resolved, last=FUSION), translation, translation.kernels)


def _fused(
    module: tvm.IRModule, translation: Translation, members: Mapping[str, set[str]]
) -> list[tuple[str, list[str]]]:
    """(kernel, names of the nodes that it computes, in order) of every fused function of a module just after fusion.

    `members`: the nodes of the kernels that those functions call.
    """
    order = {report.node: number for number, report in enumerate(translation.nodes)}
    found = []
    for var, function in module.functions.items():
        if not isinstance(function, relax.Function) or var.name_hint == "main":
            continue
        names: set[str] = set()
        for block in function.body.blocks:
            for binding in block.bindings:
                call = binding.value
                if isinstance(call, relax.Call) and len(call.args) and hasattr(call.args[0], "name_hint"):
                    names |= members.get(call.args[0].name_hint, set())
        found.append((str(var.name_hint), sorted(names, key=lambda name: order.get(name, len(order)))))
    return found


def _main(module: tvm.IRModule) -> str:
    (main,) = (f for v, f in module.functions.items() if v.name_hint == "main" and isinstance(f, relax.Function))
    return str(main.script(show_meta=False))


def _kernel(name: str, function: tirx.PrimFunc, device: Device, target: tvm.target.Target, longest: int) -> KernelTrace:
    library = LIBRARY_CALL in (function.attrs or {})
    tir = str(function.script())
    try:
        alone = tvm.IRModule({name: function.with_attr("global_symbol", name)})
        for step in device.passes():
            alone = step(alone)
        built = tvm.compile(alone, target=target, tir_pipeline=lowering.NAME)
        code = _of_function(listing(built.mod, device), longest)
    except Exception:  # a listing less
        code = ""
    return KernelTrace(name, Kind.LIBRARY if library else Kind.NATIVE, tir, code)


def _of_function(text: str, longest: int) -> str:
    """The functions of a module that compute, without TVM's checks of arguments, declarations and debug lines."""
    parts = re.findall(r"^define [^\n]*\n.*?^}\n", text, re.MULTILINE | re.DOTALL)
    chosen = [p for p in parts if "compute" in p.splitlines()[0] or "lambda" in p.splitlines()[0]] or parts
    lines = [re.sub(r", !(dbg|tbaa|prof) !\d+", "", line) for part in chosen for line in part.splitlines()]
    found = "\n".join(line for line in lines if "#dbg_" not in line)
    return found if len(found) <= longest else f"{found[:longest]}\n; ... {len(found) - longest} characters more"
