# SPDX-License-Identifier: Apache-2.0
"""Differences of floats as they stand.

TVM's simplifier cancels in float as it does in integers: `x - x` becomes 0 (eager: NaN where x is infinite or NaN), and
`(x + y) - y` becomes x (eager: x rounded to the last place of y). It does so wherever both operands come together in
one kernel, after inlining as well. It has no such rule for sums, and `a + b * -1` is the same number to the last bit:
LLVM makes the subtraction of it again.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from ..kernel_pass import kernel_pass


def keep_subtractions() -> Any:
    """The pass that writes each difference of floats as a sum; it comes before anything simplifies."""
    return kernel_pass("KeepSubtractions", lambda kernel: tvm_ffi.structural_map(kernel, (tirx.Sub, _kept)))


def _kept(difference: Any) -> Any:
    dtype = str(difference.ty.dtype)
    if not dtype.startswith(("float", "bfloat")):
        return difference
    return tirx.Add(difference.a, tirx.Mul(difference.b, tirx.const(-1.0, dtype)))
