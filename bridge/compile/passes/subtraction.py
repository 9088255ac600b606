"""Differences of floats as they stand.

TVM's simplifier cancels in float as it does in integers: `x - x` becomes 0 (eager: NaN where x is infinite or NaN), and
`(x + y) - y` becomes x (eager: x rounded to the last place of y). It does so wherever both operands come together in
one kernel, after inlining as well. It has no such rule for sums, and `a + b * -1` is the same number to the last bit:
LLVM makes the subtraction of it again.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx


@tvm.transform.module_pass(opt_level=0, name="KeepSubtractions")
class _KeepSubtractions:
    def transform_module(self, module: tvm.IRModule, _: Any) -> tvm.IRModule:
        updated = tvm.IRModule(module.functions, attrs=module.attrs)
        for var, function in module.functions.items():
            if isinstance(function, tirx.PrimFunc):
                updated.update_func(var, tvm_ffi.structural_map(function, (tirx.Sub, _kept)))
        return updated


def keep_subtractions() -> Any:
    """The pass that writes each difference of floats as a sum; it comes before anything simplifies."""
    return _KeepSubtractions()


def _kept(difference: Any) -> Any:
    dtype = str(difference.ty.dtype)
    if not dtype.startswith(("float", "bfloat")):
        return difference
    return tirx.Add(difference.a, tirx.Mul(difference.b, tirx.const(-1.0, dtype)))
