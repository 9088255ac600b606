# SPDX-License-Identifier: Apache-2.0
"""What TVM's CUDA source does not say exactly: constants of float64, and bits taken as another type.

It writes float64 constants with 15 decimals behind the point, whatever their size (1e-20 becomes 0), and takes the
address of an expression that has none to read its bits.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from ....compile.kernel_pass import kernel_pass

#: CUDA's functions, by the types that they take and give.
_CASTS = {
    ("int32", "float32"): "__int_as_float",
    ("uint32", "float32"): "__uint_as_float",
    ("float32", "int32"): "__float_as_int",
    ("float32", "uint32"): "__float_as_uint",
    ("int64", "float64"): "__longlong_as_double",
    ("float64", "int64"): "__double_as_longlong",
}


def exact_bits() -> Any:
    """The pass."""

    def change(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
        body = tvm_ffi.structural_map(kernel.body, (ir.Call, _cast))
        return kernel.with_body(tvm_ffi.structural_map(body, (tirx.FloatImm, _exact)))

    return kernel_pass("ExactBits", change)


def _cast(call: Any) -> Any:
    if getattr(call.op, "name", "") != "tirx.reinterpret":
        return call
    (value,) = call.args
    name = _CASTS.get((str(value.ty.dtype), str(call.ty.dtype)))
    return call if name is None else tirx.call_pure_extern(str(call.ty.dtype), name, value)


def _exact(constant: Any) -> Any:
    value = float(constant.value)
    if str(constant.ty.dtype) != "float64" or not math.isfinite(value) or float(f"{value:.15f}") == value:
        return constant
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return tirx.call_pure_extern("float64", "__longlong_as_double", tirx.const(bits, "int64"))
