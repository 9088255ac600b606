# SPDX-License-Identifier: Apache-2.0
"""TVM's lowering of scheduled kernels, without the argument checks of each kernel.

Note [Argument checks]
TVM has every kernel check the type, rank, sizes, strides, alignment and device of each argument whenever it is called:
four fifths of a training graph's LLVM IR and half of the time to compile it. Kernels here are called by the graph's
virtual machine alone. It checks the inputs of the whole graph once a call (`vm.builtin.check_tensor_info`), makes every
tensor between kernels itself, and results of ATen are held against what was traced (runtime/extern_calls.py). What the
importer itself asserts (an index within its dim, a divisor that is not zero) stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from ..schedule.analysis import collect

#: Name of the lowering, for `relax.build`.
NAME = "relaxgrad"


def _lowering() -> tuple[Any, Any, Any]:
    lower, host, device = tirx.get_tir_pipeline("s_tir")

    @tvm.transform.module_pass(opt_level=0, name="LowerKernels")
    def pipeline(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        own = {
            str(var.name_hint): set(map(_text, collect(function, tirx.AssertStmt)))
            for var, function in _kernels(module).items()
        }
        with _typed_rests():
            module = lower(module)
        updated = tvm.IRModule(module.functions, attrs=module.attrs)
        for var, function in _kernels(module).items():
            kept = own.get(str(var.name_hint))
            changes = [(tirx.AssertStmt, _keeper(kept)), (tirx.Evaluate, _unless_empty)]
            updated.update_func(var, tvm_ffi.structural_map(function, changes))
        return updated

    return pipeline, host, device


tirx.register_tir_pipeline(NAME, _lowering)


def _unless_empty(statement: Any) -> Any:
    """A launch of as many blocks as symbolic sizes make, if they make any: CUDA refuses one of none."""
    call = statement.value
    if getattr(getattr(call, "op", None), "name", "") != "tirx.call_ffi_kernel":
        return statement
    names = [str(name) for name in call.attrs["launch_params"]]
    launched = zip(names, list(call.args)[-len(names) :], strict=True)
    blocks = [n for name, n in launched if name.startswith("blockIdx") and not isinstance(n, tirx.IntImm)]
    if not blocks:
        return statement
    return tirx.IfThenElse(tirx.all(*(n > tirx.const(0, str(n.ty.dtype)) for n in blocks)), statement, None)


def _typed_rests() -> Any:
    """LoopPartition puts an int32 zero in the place of an int64 loop of one step, unless it is to leave such loops."""
    now = tvm.transform.PassContext.current()
    config = {**now.config, "s_tir.LoopPartition": {"no_unroll_loop_with_extent_one": True}}
    return tvm.transform.PassContext(now.opt_level, now.required_pass, now.disabled_pass, config=config)


def _kernels(module: tvm.IRModule) -> dict[Any, Any]:
    return {var: f for var, f in module.functions.items() if isinstance(f, tirx.PrimFunc)}


def _keeper(kept: set[tuple[str, ...]] | None) -> Callable[[Any], Any]:
    """Has every check go that is not among `kept`."""
    nothing = tirx.Evaluate(0)
    if not kept:
        return lambda check: nothing
    return lambda check: check if _text(check) in kept else nothing


def _text(check: Any) -> tuple[str, ...]:
    return str(check.error_kind), *(str(part) for part in check.message_parts)
