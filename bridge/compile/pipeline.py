# SPDX-License-Identifier: Apache-2.0
"""The passes between the importer's Relax module and machine code, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax import transform as rx

from ..attributes import LIBRARY_CALL, OVERWRITES, WRITTEN
from ..device import Device
from ..kinds import Kernel, Kind
from ..runtime.virtual_machine import RELEASE
from .flop_count import operations
from .kernel_pass import kernel_pass
from .passes import lowering
from .passes.horizontal_fusion import fuse_horizontally
from .passes.in_place import write_in_place
from .passes.subtraction import keep_subtractions
from .schedule import is_element_wise, schedule_kernels


def passes(device: Device, target: tvm.target.Target) -> list[Any]:
    """What runs, in order. Each entry maps a module to a module."""
    return [
        # Only what the outputs read is computed.
        rx.DeadCodeElimination(["main"]),
        # Element-wise chains and the index computations of views become one kernel with their reader.
        rx.AnnotateTIROpPattern(),
        rx.FuseOps(fuse_opt_level=2),
        rx.FuseTIR(),
        # Kernels over the same elements become one with several results.
        fuse_horizontally(is_element_wise),
        rx.FuseTIR(),
        keep_subtractions(),
        rx.DeadCodeElimination(["main"]),
        add_release(),
        schedule_kernels(device.rules(), target),
        write_in_place(),
        assume_element_alignment(),
        *device.passes(),
        # A reshape of a whole tensor shares its memory.
        rx.RewriteDataflowReshape(),
        # Destination passing, memory planned ahead, shapes computed once.
        rx.ToNonDataflow(),
        rx.RemovePurityChecking(),
        rx.CallTIRRewrite(),
        rx.StaticPlanBlockMemory(),
        rx.LowerAllocTensor(),
        rx.KillAfterLastUse(),
        rx.LowerRuntimeBuiltin(),
        rx.ComputePrimValue(),
        rx.VMShapeLower(emit_err_ctx=False),
        rx.AttachGlobalSymbol(),
    ]


def run_passes(
    module: tvm.IRModule,
    device: Device,
    target: tvm.target.Target,
    observe: Callable[[str, tvm.IRModule], None] | None = None,
    last: str = "",
) -> tvm.IRModule:
    """The module after the passes, or after the first one called `last`; to be called under `device.lowering()` and
    `target`. `observe` gets the name of each pass and the module after it. Raises what TVM raises."""
    for step in passes(device, target):
        module = step(module)
        name = str(step.info.name)
        if observe is not None:
            observe(name, module)
        if name == last:
            break
    return module


class Code(NamedTuple):
    """A compiled module."""

    executable: Any  # Relax's
    kernels: dict[str, Kernel]  # by name; native (TVM generated it) or library (all that it does is to call one)
    written: dict[int, int]  # results that are none any more -> the argument that has the value: see in_place.py


def compile_module(module: tvm.IRModule, device: Device, target: tvm.target.Target) -> Code:
    """Compiles `main` for `target`, one of `device`. Raises what TVM raises."""
    with device.lowering(), target:
        module = run_passes(module, device, target)
        kernels = {
            str(var.name_hint): _kernel(function, device)
            for var, function in module.functions.items()
            if isinstance(function, tirx.PrimFunc)
        }
        written = {int(result): int(param) for result, param in (module["main"].attrs or {}).get(WRITTEN, ())}
        executable = relax.build(module, target, relax_pipeline=None, tir_pipeline=lowering.NAME)
    return Code(executable, kernels, written)


def listing(module: Any, device: Device) -> str:
    """The device's code in a compiled module and in those that it imports, as text; empty where there is none."""
    own = [module.inspect_source(device.listing)] if module.kind == device.kind else []
    return "\n".join([*own, *(text for inner in module.imports if (text := listing(inner, device)))])


def _kernel(function: tirx.PrimFunc, device: Device) -> Kernel:
    attrs = function.attrs or {}
    if LIBRARY_CALL in attrs:
        return Kernel(Kind.LIBRARY)
    return Kernel(
        Kind.NATIVE,
        operations(function, device.instructions),
        tuple(int(number) for number in attrs.get(OVERWRITES, ())),
    )


@tvm.transform.module_pass(opt_level=0, name="AddRelease")
class _AddRelease:
    """Adds the function that has the virtual machine let go of its last results: see runtime/virtual_machine.py."""

    def transform_module(self, module: tvm.IRModule, _: Any) -> tvm.IRModule:
        updated = tvm.IRModule(module.functions, attrs=module.attrs)
        nothing = relax.Function([], relax.Tuple([]), relax.TupleType([]), is_pure=False)
        updated[RELEASE] = nothing.with_attr("global_symbol", RELEASE)
        return updated


def add_release() -> Any:
    return _AddRelease()


def assume_element_alignment() -> Any:
    """The pass after which kernels assume the alignment of one element and no more.

    TVM's default of 64 bytes is never checked: a view with an offset, an ordinary input, would crash the process.
    """
    return kernel_pass(
        "AssumeElementAlignment", lambda kernel: tvm_ffi.structural_map(kernel, (tirx.BufferType, _unaligned))
    )


def _unaligned(buffer: Any) -> Any:
    size = max(1, tvm.DataType(str(buffer.dtype)).bits // 8)
    if buffer.data_alignment == size:
        return buffer
    return tirx.buffer._ffi_api.BufferType(  # the public decl_buffer makes a new variable; only its type is to change
        buffer.storage_scope,
        buffer.dtype,
        buffer.shape,
        buffer.strides,
        buffer.elem_offset,
        size,
        buffer.offset_factor,
        buffer.layout,
        buffer.allocated_addr,
        buffer.span,
    )
