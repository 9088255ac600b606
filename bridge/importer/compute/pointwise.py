# SPDX-License-Identifier: Apache-2.0
"""Element-wise arithmetic with ATen's semantics: scalar functions from tirx expressions to tirx expressions.

Each takes and returns expressions of the dtype in which ATen computes (float32 for halves). NaN goes through
comparisons, maxima and clamps as in ATen; integers wrap; division, remainder and fmod follow PyTorch's signs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from . import intrinsic
from .layout import broadcast_index

Expr = Any


def dtype_of(x: Expr) -> str:
    return str(x.ty.dtype)


def is_float(x: Expr) -> bool:
    return dtype_of(x).startswith(("float", "bfloat"))


def number(value: float | int | bool, dtype: str) -> Expr:
    """A constant of `dtype`, infinities and NaN included."""
    if dtype.startswith(("float", "bfloat")):
        return tirx.const(float(value), dtype)
    if dtype == "bool":
        return tirx.const(bool(value), "bool")
    bits = int("".join(c for c in dtype if c.isdigit()))
    wrapped = int(value) % (1 << bits)
    if dtype.startswith("int") and wrapped >= 1 << (bits - 1):
        wrapped -= 1 << bits
    return tirx.const(wrapped, dtype)


def operand(value: float | int | bool, dtype: str) -> Expr:
    """A constant that takes part in arithmetic: see Note [What TVM simplifies]."""
    if dtype.startswith(("float", "bfloat")) and float(value) == 0:
        wide = "float64" if dtype == "float64" else "float32"
        return cast(tirx.sqrt(number(value, wide)), dtype)
    return number(value, dtype)


def compare(name: str, a: Expr, b: Expr) -> Expr:
    """`a <name> b`, for eq, ne, lt, le, gt and ge.

    Note [What TVM simplifies]
    TVM's simplifier takes floats for numbers of a field without NaN: `x * 0.0` and `0.0 / x` become 0.0, `not (a <
    b)` becomes `b <= a`, `x != x` becomes false. Zero is therefore written as its square root, which keeps the sign,
    and the result of a comparison of floats goes through int8, behind which the simplifier sees no comparison; LLVM
    removes both. It cancels differences as well: compile/passes/subtraction.py.
    """
    if not is_float(a):
        plain: Expr = _COMPARE[name](a, b)
        return plain
    if name in ("eq", "ne"):
        both = tirx.all(compare("le", a, b), compare("ge", a, b))
        return both if name == "eq" else tirx.EQ(both.astype("int8"), tirx.const(0, "int8"))
    return tirx.NE(_COMPARE[name](a, b).astype("int8"), tirx.const(0, "int8"))


_COMPARE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "eq": tirx.EQ,
    "ne": tirx.NE,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def cast(x: Expr, dtype: str) -> Expr:
    """`x.to(dtype)`: to bool is a test against zero; float to integer truncates."""
    source = dtype_of(x)
    if source == dtype:
        return x
    if dtype == "bool":
        return tirx.NE(x, number(0, source))
    if source == "bool":
        return tirx.Select(x, number(1, dtype), number(0, dtype))
    if source in ("float16", "bfloat16") and dtype in ("float16", "bfloat16"):
        return x.astype("float32").astype(dtype)
    if source.startswith(("float", "bfloat")) and not dtype.startswith(("float", "bfloat", "int64")):
        # C leaves float -> small integer undefined out of range; through int64 it wraps, as ATen's kernels do.
        return x.astype("int64").astype(dtype)
    return x.astype(dtype)


def differ(a: Expr, b: Expr) -> Expr:
    """Exclusive or of two truth values (TVM compares bools as floats, which LLVM refuses)."""
    return tirx.any(tirx.all(a, tirx.Not(b)), tirx.all(tirx.Not(a), b))


def isnan(x: Expr) -> Expr:
    # Not `x != x`: TVM simplifies that to false, for floats as well. It has no isnan of bfloat16.
    if dtype_of(x) == "bfloat16":
        return tirx.isnan(x.astype("float32"))
    return tirx.isnan(x) if is_float(x) else tirx.const(False, "bool")


def isinf(x: Expr) -> Expr:
    if not is_float(x):
        return tirx.const(False, "bool")
    infinity = number(math.inf, dtype_of(x))
    return tirx.any(tirx.EQ(x, infinity), tirx.EQ(x, -infinity))


def maximum(a: Expr, b: Expr) -> Expr:
    """NaN where either is NaN."""
    if dtype_of(a) == "bool":
        return tirx.any(a, b)
    if not is_float(a):
        return tirx.Select(a > b, a, b)
    if _is_number(b):
        return tirx.Select(a <= b, b, a)
    return tirx.Select(tirx.any(a > b, isnan(a)), a, b)


def minimum(a: Expr, b: Expr) -> Expr:
    """NaN where either is NaN."""
    if dtype_of(a) == "bool":
        return tirx.all(a, b)
    if not is_float(a):
        return tirx.Select(a < b, a, b)
    if _is_number(b):
        return tirx.Select(a >= b, b, a)
    return tirx.Select(tirx.any(a < b, isnan(a)), a, b)


def _is_number(x: Expr) -> bool:
    """Whether `x` is a constant other than NaN: then one comparison tells all."""
    return isinstance(x, tirx.FloatImm) and not math.isnan(float(x.value))


def relu(x: Expr) -> Expr:
    return maximum(x, number(0, dtype_of(x)))


def sign(x: Expr) -> Expr:
    """-1, 0 or 1; 0 for NaN, as ATen's `(0 < x) - (x < 0)`."""
    dtype = dtype_of(x)
    if dtype == "bool":
        return x
    zero, one = number(0, dtype), number(1, dtype)
    negative = zero if dtype.startswith("uint") else number(-1, dtype)
    return tirx.Select(x > zero, one, tirx.Select(x < zero, negative, zero))


def absolute(x: Expr) -> Expr:
    if dtype_of(x).startswith("uint") or dtype_of(x) == "bool":
        return x
    return tirx.abs(x)


def negative(x: Expr) -> Expr:
    # Not `0 - x` for floats, which loses the sign of zero.
    return x * number(-1, dtype_of(x)) if is_float(x) else number(0, dtype_of(x)) - x


def sigmoid(x: Expr) -> Expr:
    return intrinsic.call("sigmoid", x)


def libm(name: str) -> Callable[..., Expr]:
    """A function of the C math library, for those that TVM has no intrinsic for."""

    def call(*args: Expr) -> Expr:
        dtype = dtype_of(args[0])
        return tirx.call_pure_extern(dtype, name if dtype == "float64" else f"{name}f", *args)

    return call


def _safe_divisor(b: Expr) -> tuple[Expr, Expr]:
    """(whether b is -1, b with -1 replaced by 1): the smallest integer over -1 traps on x86, and wraps in ATen."""
    minus_one = tirx.EQ(b, number(-1, dtype_of(b)))
    return minus_one, tirx.Select(minus_one, number(1, dtype_of(b)), b)


def trunc_div_int(a: Expr, b: Expr) -> Expr:
    """Rounds towards zero. `b` must not be zero: converters check that first."""
    if dtype_of(a).startswith("uint"):
        return tirx.truncdiv(a, b)
    minus_one, divisor = _safe_divisor(b)
    quotient = tirx.truncdiv(a, divisor)
    return tirx.Select(minus_one, number(0, dtype_of(a)) - a, quotient)


def trunc_mod_int(a: Expr, b: Expr) -> Expr:
    if dtype_of(a).startswith("uint"):
        return tirx.truncmod(a, b)
    minus_one, divisor = _safe_divisor(b)
    return tirx.Select(minus_one, number(0, dtype_of(a)), tirx.truncmod(a, divisor))


def floor_div_int(a: Expr, b: Expr) -> Expr:
    """Rounds towards minus infinity, whatever the signs."""
    if dtype_of(a).startswith("uint"):
        return tirx.truncdiv(a, b)
    quotient, rest = trunc_div_int(a, b), trunc_mod_int(a, b)
    zero, one = number(0, dtype_of(a)), number(1, dtype_of(a))
    adjust = tirx.all(tirx.NE(rest, zero), differ(rest < zero, b < zero))
    return tirx.Select(adjust, quotient - one, quotient)


def fmod(a: Expr, b: Expr) -> Expr:
    """The sign of the dividend."""
    return libm("fmod")(a, b) if is_float(a) else trunc_mod_int(a, b)


def remainder(a: Expr, b: Expr) -> Expr:
    """The sign of the divisor (c10/util/generic_math.h, div_floor's companion)."""
    zero = number(0, dtype_of(a))
    rest = fmod(a, b)
    if dtype_of(a).startswith("uint"):
        return rest
    return tirx.Select(tirx.all(tirx.NE(rest, zero), differ(b < zero, rest < zero)), rest + b, rest)


def floor_div_float(a: Expr, b: Expr) -> Expr:
    """Floor division of floats as in c10::div_floor_floating: from the remainder, corrected to the nearest floor."""
    dtype = dtype_of(a)
    zero, one, half = number(0, dtype), number(1, dtype), number(0.5, dtype)
    rest = fmod(a, b)
    quotient = (a - rest) / b
    quotient = tirx.Select(tirx.all(tirx.NE(rest, zero), differ(b < zero, rest < zero)), quotient - one, quotient)
    floored = tirx.floor(quotient)
    floored = tirx.Select(quotient - floored > half, floored + one, floored)
    signed_zero = tirx.copysign(zero, a / b)
    result = tirx.Select(tirx.NE(quotient, zero), floored, signed_zero)
    return tirx.Select(tirx.EQ(b, zero), a / b, result)


def true_div(a: Expr, b: Expr) -> Expr:
    return a / b


def round_half_even(x: Expr) -> Expr:
    return tirx.nearbyint(x) if is_float(x) else x


def elementwise(function: Callable[..., Expr]) -> Callable[..., te.Tensor]:
    """The tensor expression of a scalar function: `(*tensors, shape, compute_dtype, out_dtype) -> te.Tensor`.

    Elements are broadcast to `shape`, cast to `compute_dtype` ("" keeps each as it is), the result cast to `out_dtype`.
    """

    def compute(*args: Any) -> te.Tensor:
        *tensors, shape, compute_dtype, out_dtype = args

        def element(*i: Any) -> Expr:
            values = [t(*broadcast_index(i, t.shape, shape)) for t in tensors]
            if compute_dtype:
                values = [cast(v, compute_dtype) for v in values]
            return cast(function(*values), out_dtype)

        return te.compute(tuple(shape), element, name="elementwise")

    return compute
