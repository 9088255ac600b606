# SPDX-License-Identifier: Apache-2.0
"""The pass pipeline as a list, and what its own passes promise."""

from __future__ import annotations

import torch
from tvm import relax, te, tirx

from relaxgrad.bridge.compile import pipeline
from relaxgrad.bridge.device import host
from relaxgrad.bridge.devices.cpu.passes import intrinsics
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.targets import resolve_target


def _doubling(size: int) -> tuple[relax.BlockBuilder, torch.Tensor]:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([size], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_te(lambda t: te.compute(t.shape, lambda i: t(i) * tirx.const(2.0, "float32")), x)
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder, torch.arange(size + 1, dtype=torch.float32)


def test_passes_read_as_a_list_in_order() -> None:
    names = [p.info.name for p in pipeline.passes(host(), resolve_target("llvm"))]
    assert names.index("FuseOps") < names.index("FuseTIR") < names.index("ScheduleKernels")
    assert names.index("ScheduleKernels") < names.index("AssumeElementAlignment") < names.index("CallTIRRewrite")


def test_kernels_take_inputs_of_any_alignment() -> None:
    """A view that starts one element into its memory is aligned to 4 bytes; TVM's default would crash the process."""
    import tvm

    builder, memory = _doubling(1024)
    executable, kernels, _ = pipeline.compile_module(builder.get(), host(), resolve_target("llvm"))
    assert [kernel.kind for kernel in kernels.values()] == [Kind.NATIVE]
    view = memory[1:]
    assert view.data_ptr() % 64 != 0
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](view)
    assert torch.equal(torch.as_tensor(result), view * 2)


def test_every_buffer_of_a_compiled_kernel_assumes_its_element_only() -> None:
    builder, _ = _doubling(64)
    target = resolve_target("llvm")
    with intrinsics.in_use(), target:
        module = pipeline.run_passes(builder.get(), host(), target, last="AssumeElementAlignment")
    kernels = [f for f in module.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert kernels
    assert all(p.ty.data_alignment == 4 for f in kernels for p in f.params if hasattr(p.ty, "data_alignment"))
