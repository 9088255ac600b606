# SPDX-License-Identifier: Apache-2.0
"""Functions of one element that TVM has no op for, or one that is imprecise or warns, as ops of our own.

TVM can vectorise a loop around an op, which it cannot around a call of the C library. What an op becomes is decided
when its kernel is lowered: the device has its own for some, and the C library the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import ir, tirx

Expr = Any

_C_FUNCTIONS = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erfc", "expm1", "pow", "sinh", "tan")
#: The op of each function.
OPS = {name: f"relaxgrad.{name}" for name in (*_C_FUNCTIONS, "sigmoid")}
_PURE = 1  # tirx.CallEffectKind.Pure


def call(name: str, *arguments: Expr) -> Expr:
    """The function of `OPS` of that name, of float32 or float64 arguments, all of one dtype."""
    return tirx.call_intrin(str(arguments[0].ty.dtype), OPS[name], *arguments)


def power(x: Expr, y: Expr) -> Expr:
    """`x ** y` of two expressions of one float dtype, float32 or float64, with C's special cases.

    No `tirx.pow`: TVM warns on stderr whenever it makes such a call anew with a constant y from 3 on, for lowerings
    whose powers of a negative x are wrong; and passes of its own make calls anew.
    """
    return call("pow", x, y)


def by_lane(vector: Any, lower: Callable[[Any], Expr]) -> Expr:
    """A call of an op on vectors as one call a lane, each lowered by `lower`; a call on scalars simply lowered."""
    scalar, _, lanes = str(vector.ty.dtype).partition("x")
    if not lanes:
        return lower(vector)

    def lane(x: Expr, i: int) -> Expr:
        return x.value if isinstance(x, tirx.Broadcast) else tirx.Shuffle([x], [tirx.const(i, "int32")])

    count = int(lanes)
    calls = [lower(tirx.call_intrin(scalar, vector.op, *(lane(a, i) for a in vector.args))) for i in range(count)]
    return tirx.Shuffle(calls, [tirx.const(i, "int32") for i in range(count)])


def _c_function(name: str) -> Callable[[Any], Expr]:
    def lower(call: Any) -> Expr:
        dtype = str(call.ty.dtype)
        return tirx.call_pure_extern(dtype, name if dtype == "float64" else f"{name}f", *call.args)

    return lambda call: by_lane(call, lower)


def _sigmoid(call: Any) -> Expr:
    (x,) = call.args
    dtype, _, lanes = str(x.ty.dtype).partition("x")
    one, minus_one = (
        tirx.Broadcast(tirx.const(c, dtype), int(lanes)) if lanes else tirx.const(c, dtype) for c in (1.0, -1.0)
    )
    return one / (one + tirx.exp(x * minus_one))


def _register() -> None:
    for name, op in OPS.items():
        tvm_ffi.get_global_func("ir.RegisterOp")(op, f"{name} of each element")
        ir.register_op_attr(op, "TCallEffectKind", _PURE)
        ir.register_op_attr(op, "TVectorizable", True)
        ir.register_op_attr(op, "TScriptPrinterName", name)
        lower = _sigmoid if name == "sigmoid" else _c_function(name)
        tirx.register_intrin_lowering(op, target="default", f=lower)


_register()
