"""Vector math for `llvm`: exp, tanh and erf of float32 as polynomials.

TVM lowers these to libm calls, one a lane. The lowerings here run after vectorisation and see vector types, so a
kernel's vector loop stays one; in a scalar loop they are plain arithmetic that LLVM can vectorise. Coefficients:
interpolation at Chebyshev nodes in 50 digits, of the functions and on the intervals named beside them. float64 and the
halves (which compute in float32) are left to TVM.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx

Expr = Any

# (exp(r) - 1 - r) / r^2 on |r| <= 1.01 ln(2) / 2
_EXP = (0.5000000014286223, 0.16666666682534356, 0.04166645680967788, 0.008333310024225292, 0.0013934541928270264,
        0.0001989198131397769)  # fmt: skip
# (tanh(x) / x - 1) / x^2 in x^2, on |x| <= 0.625
_TANH = (-0.3333333317214036, 0.1333330355691574, -0.053959259577204544, 0.02176891865102821, -0.008343945515839153,
         0.002292744816178142)  # fmt: skip
# erf(x) / x - 1 in x^2, on |x| <= 1
_ERF = (0.1283791670615435, -0.3761263846802871, 0.11283782495236845, -0.026865430727670243, 0.005221031807858023,
        -0.0008484080405535107, 0.00011265959025606609, -9.667044571486996e-06)  # fmt: skip
# log(erfc(x)) on [1, 4]
_LOG_ERFC = (0.00032013804967769883, -1.130233434841994, -0.631826051559163, -0.11008008294882024, 0.026421136005663898,
             -0.004759596293266265, 0.0005968056256607798, -4.605804268918978e-05, 1.6371514145936436e-06)  # fmt: skip

_ROUND = 12582912.0  # 1.5 * 2**23: adding it to a float32 rounds it to an integer, kept in the low bits
_ROUND_BITS = 0x4B400000


def _like(x: Expr, value: float, dtype: str = "float32") -> Expr:
    """A constant with as many lanes as `x`."""
    scalar = tirx.const(value, dtype)
    lanes = _lanes(x)
    return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)


def _lanes(x: Expr) -> int:
    return int(tvm.DataType(str(x.ty.dtype)).lanes) if "x" in str(x.ty.dtype) else 1


def _typed(x: Expr, dtype: str) -> str:
    lanes = _lanes(x)
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def _llvm(name: str, *args: Expr) -> Expr:
    """An LLVM intrinsic on float32.

    These stand where operators and Select would do, because TVM's simplifier puts the value of a `Let` in place of its
    variable wherever it takes the value for pure: nested functions then grow without bound (erf took 0.9 s to compile).
    It leaves an intrinsic alone.
    """
    return tirx.call_llvm_intrin(_typed(args[0], "float32"), f"llvm.{name}", *args)


def _multiply_add(a: Expr, b: Expr, c: Expr) -> Expr:
    """`a * b + c`, fused where the CPU can."""
    return _llvm("fmuladd", a, b, c)


def _polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Horner's rule, the constant first in `coefficients`."""
    result = _like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = _multiply_add(result, x, _like(x, c))
    return result


def _let(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """`body(value)` with the value computed once."""
    var = tirx.Var("v", value.ty)
    return tirx.Let(var, value, body(var))


def exp(x: Expr) -> Expr:
    """2^n * exp(r) with x = n ln 2 + r: overflow gives infinity, underflow denormals and zero, NaN stays NaN."""

    def clamped(v: Expr) -> Expr:
        return _llvm("minimum", _llvm("maximum", v, _like(x, -104.0)), _like(x, 89.0))  # NaN goes through both

    def reduced(v: Expr) -> Expr:
        return _let(_multiply_add(v, _like(x, 1.4426950408889634), _like(x, _ROUND)), lambda t: scaled(v, t))

    def scaled(v: Expr, rounded: Expr) -> Expr:
        n = rounded - _like(x, _ROUND)
        # ln 2 in two parts, the first with few enough bits for an exact product
        r = _multiply_add(n, _like(x, 2.12194440e-4), _multiply_add(n, _like(x, -0.693359375), v))
        count = tirx.reinterpret(_typed(x, "int32"), rounded) - _like(x, _ROUND_BITS, "int32")
        return _let(r, lambda r: _let(count, lambda count: power(r, count)))

    def power(r: Expr, n: Expr) -> Expr:
        p = _like(x, 1.0) + _multiply_add(r * r, _polynomial(r, _EXP), r)
        half = tirx.shift_right(n, _like(x, 1, "int32"))
        return p * _two_to(half) * _two_to(n - half)

    def _two_to(n: Expr) -> Expr:
        bits = tirx.shift_left(n + _like(x, 127, "int32"), _like(x, 23, "int32"))
        return tirx.reinterpret(_typed(x, "float32"), bits)

    return _let(x, lambda v: _let(clamped(v), reduced))


def _signed(x: Expr, magnitude: Callable[[Expr], Expr], near: Callable[[Expr], Expr], border: float) -> Expr:
    """`near(x)` for |x| < border, else `magnitude(|x|)` with the sign of x; NaN stays NaN."""

    def body(v: Expr) -> Expr:
        def chosen(a: Expr) -> Expr:
            far = _llvm("copysign", magnitude(a), v)
            return tirx.Select(a < _like(x, border), near(v), far)

        return _let(_llvm("fabs", v), chosen)

    return _let(x, body)


def tanh(x: Expr) -> Expr:
    one, two = _like(x, 1.0), _like(x, 2.0)

    def near(v: Expr) -> Expr:
        return _let(v * v, lambda u: _multiply_add(v * u, _polynomial(u, _TANH), v))

    return _signed(x, lambda a: one - two / (exp(a + a) + one), near, 0.625)


def erf(x: Expr) -> Expr:
    one, top = _like(x, 1.0), _like(x, 4.0)

    def far(a: Expr) -> Expr:
        return _let(_llvm("minimum", a, top), lambda c: one - exp(_polynomial(c, _LOG_ERFC)))

    def near(v: Expr) -> Expr:
        return _let(v * v, lambda u: _multiply_add(v, _polynomial(u, _ERF), v))

    return _signed(x, far, near, 1.0)


@functools.cache
def register() -> None:
    """Registers the lowerings, once a process."""
    for name, function in (("exp", exp), ("tanh", tanh), ("erf", erf)):
        tirx.register_intrin_lowering(f"tirx.{name}", target="llvm", f=_float32_only(name, function), level=99)


def _float32_only(name: str, function: Callable[[Expr], Expr]) -> Callable[[Any], Expr]:
    default = tvm.ir.Op.get(f"tirx.{name}").get_attr("llvm.FLowerIntrinsic") or tvm.ir.Op.get(f"tirx.{name}").get_attr(
        "default.FLowerIntrinsic"
    )

    def lower(call: Any) -> Expr:
        if str(call.ty.dtype).split("x")[0] == "float32":
            return function(call.args[0])
        return call if default is None else default(call)

    return lower
