# SPDX-License-Identifier: Apache-2.0
"""Element-wise ops seldom used: bit shifts, neighbours, exponents, signs, rounding to decimals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tvm import te, tirx

from ...kinds import ReasonKind
from ..compute import bessel, error_functions, gamma, intrinsic, program, search
from ..compute import index as ix
from ..compute import pointwise as pw
from ..compute import reduce as rd
from ..compute.pointwise import Expr, number
from ..context import ConversionContext
from ..registry import overload, register
from ..types import DTYPES, HALVES, is_empty, is_float, opmath
from ..values import SymbolicNumber, TensorValue
from .creation import filled
from .index import checked_index
from .pointwise import common_dtype, emit, out_dtype

aten = torch.ops.aten


def _ignoring_nan(x: Expr, y: Expr, larger: bool) -> Expr:
    if not pw.is_float(x):
        return pw.maximum(x, y) if larger else pw.minimum(x, y)
    best = tirx.Select(x > y if larger else x < y, x, y)
    return tirx.Select(pw.isnan(x), y, tirx.Select(pw.isnan(y), x, best))


@register(aten.fmax.default)
def convert_fmax(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> TensorValue:
    return emit(ctx, lambda x, y: _ignoring_nan(x, y, True), [a, b], opmath(out_dtype(ctx)))


@register(aten.fmin.default)
def convert_fmin(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> TensorValue:
    return emit(ctx, lambda x, y: _ignoring_nan(x, y, False), [a, b], opmath(out_dtype(ctx)))


@register(aten.nextafter.default, dtypes=["bfloat16", "float32", "float64"])
def convert_nextafter(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> TensorValue:
    if out_dtype(ctx) == "bfloat16":
        return emit(ctx, _nextafter_bfloat16, [a, b], "float32")
    return emit(ctx, pw.libm("nextafter"), [a, b], out_dtype(ctx))


def _nextafter_bfloat16(x: Expr, y: Expr) -> Expr:
    """Order of bfloat16 values held as float32: their upper 16 bits are a number that counts the values on either side
    of zero."""
    zero, step = number(0, "float32"), tirx.const(1 << 16, "int32")
    bits = tirx.reinterpret("int32", x)
    away = tirx.any(tirx.all(x > zero, y > x), tirx.all(x < zero, y < x))
    moved = tirx.reinterpret("float32", tirx.Select(away, bits + step, bits - step))
    smallest = tirx.copysign(tirx.reinterpret("float32", step), y)
    found = tirx.Select(tirx.EQ(x, y), y, tirx.Select(tirx.EQ(x, zero), smallest, moved))
    return tirx.Select(tirx.any(pw.isnan(x), pw.isnan(y)), number(math.nan, "float32"), found)


@register(aten.ldexp.Tensor)
def convert_ldexp(ctx: ConversionContext, x: TensorValue, exponent: TensorValue) -> TensorValue:
    """x * 2**exponent, the power in the dtype that `pow(2.0, exponent)` has."""
    dtype, power_dtype = opmath(out_dtype(ctx)), opmath(common_dtype([2.0, exponent]))

    def scaled(v: Expr, e: Expr) -> Expr:
        power = intrinsic.power(number(2, power_dtype), pw.cast(e, power_dtype))
        return pw.cast(v, dtype) * pw.cast(power, dtype)

    return emit(ctx, scaled, [x, exponent])


@register(aten.frexp.Tensor)
def convert_frexp(ctx: ConversionContext, x: TensorValue) -> tuple[TensorValue, ...]:
    """(mantissa in [0.5, 1), int32 exponent); zeros, infinities and NaN with exponent 0."""
    if x.dtype in HALVES:
        mantissa, exponents = _frexp(ctx, ctx.compute(rd.cast_all, [x], "float32"))
        return ctx.compute(rd.cast_all, [mantissa], x.dtype), exponents
    return _frexp(ctx, x)


def _frexp(ctx: ConversionContext, x: TensorValue) -> tuple[TensorValue, ...]:
    suffix = "f" if x.dtype == "float32" else ""

    def compute(t: te.Tensor) -> list[te.Tensor]:
        def exponent(*i: Any) -> Expr:
            v = t(*i)
            plain = tirx.any(tirx.EQ(v, number(0, x.dtype)), pw.isnan(v), pw.isinf(v))
            found = tirx.call_pure_extern("int32", f"ilogb{suffix}", v) + tirx.const(1, "int32")
            return tirx.Select(plain, tirx.const(0, "int32"), found)

        exponents = te.compute(t.shape, exponent, name="exponent")
        mantissa = te.compute(
            t.shape,
            lambda *i: tirx.call_pure_extern(x.dtype, f"ldexp{suffix}", t(*i), tirx.const(0, "int32") - exponents(*i)),
            name="mantissa",
        )
        return [mantissa, exponents]

    return ctx.compute_many(compute, [x])


@register(aten.round.decimals)
def convert_round_decimals(ctx: ConversionContext, x: TensorValue, decimals: int) -> TensorValue:
    """Half to even at the scaled value, as round_decimals_kernel in ATen does: halves are rounded at each step."""
    if not is_float(x.dtype):
        raise ctx.refuse(ReasonKind.DTYPE, x.dtype)
    dtype = opmath(x.dtype)

    def step(v: Expr) -> Expr:
        return pw.cast(pw.cast(v, x.dtype), dtype)

    def rounded(v: Expr) -> Expr:
        s = step(number(10.0 ** abs(decimals), dtype))
        if decimals < 0:
            return step(tirx.nearbyint(step(v / s))) * s
        return step(tirx.nearbyint(step(v * s))) / s

    return emit(ctx, rounded if decimals else pw.round_half_even, [x], dtype)


@register(aten.signbit.default)
def convert_signbit(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    def sign(v: Expr) -> Expr:
        dtype = pw.dtype_of(v)
        if is_float(dtype):
            bits = dtype.replace("float", "int")
            return tirx.reinterpret(bits, v) < number(0, bits)
        return tirx.const(False, "bool") if dtype == "bool" else v < number(0, dtype)

    return emit(ctx, sign, [x], opmath(x.dtype))


@register(aten.angle.default)
def convert_angle(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    """The angle of real numbers: pi for negative ones, else 0; NaN stays."""

    def angle(v: Expr) -> Expr:
        dtype = pw.dtype_of(v)
        found = tirx.Select(v < number(0, dtype), number(math.pi, dtype), number(0, dtype))
        return tirx.Select(pw.isnan(v), v, found)

    return emit(ctx, angle, [x], opmath(out_dtype(ctx)))


# ---- special functions: float64 inside, but where ATen's own dtype decides what overflows ----

_FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "digamma": program.in_float64(gamma.digamma),
    "erfinv": program.in_float64(error_functions.erfinv),
    "special_ndtri": program.in_float64(error_functions.ndtri),
    "special_erfcx": program.in_float64(error_functions.erfcx),
    "i0": bessel.i0,
    "special_i0e": bessel.i0e,
    "special_i1": bessel.i1,
    "special_i1e": bessel.i1e,
    "special_modified_bessel_i0": bessel.i0,
    "special_modified_bessel_i1": bessel.i1,
    "special_modified_bessel_k0": program.in_float64(bessel.second_kind(0, scaled=False)),
    "special_modified_bessel_k1": program.in_float64(bessel.second_kind(1, scaled=False)),
    "special_scaled_modified_bessel_k0": program.in_float64(bessel.second_kind(0, scaled=True)),
    "special_scaled_modified_bessel_k1": program.in_float64(bessel.second_kind(1, scaled=True)),
    "special_spherical_bessel_j0": program.in_float64(bessel.spherical_j0),
}


def _function(ctx: ConversionContext, function: Callable[..., Expr], x: TensorValue) -> TensorValue:
    return emit(ctx, function, [x], opmath(out_dtype(ctx)), kernel=program.elementwise)


for _name, _program in _FUNCTIONS.items():

    def _convert_function(
        ctx: ConversionContext, x: TensorValue, _program: Callable[..., Expr] = _program
    ) -> TensorValue:
        return _function(ctx, _program, x)

    register(overload(f"aten.{_name}.default"))(_convert_function)


@register(aten.special_zeta.default, aten.special_zeta.self_scalar, aten.special_zeta.other_scalar)
def convert_zeta(ctx: ConversionContext, s: Any, q: Any) -> TensorValue:
    return emit(ctx, program.in_float64(gamma.zeta), [s, q], opmath(out_dtype(ctx)), kernel=program.elementwise)


@register(aten.polygamma.default)
def convert_polygamma(ctx: ConversionContext, n: Any, x: TensorValue) -> TensorValue:
    if isinstance(n, SymbolicNumber) or n < 0:
        raise ctx.refuse(ReasonKind.ARGUMENTS, f"derivative number {n}")
    if n <= 1:
        return _function(ctx, program.in_float64(gamma.trigamma if n else gamma.digamma), x)
    return _function(ctx, gamma.polygamma(n), x)


def _shift(ctx: ConversionContext, a: Any, b: Any, left: bool) -> TensorValue:
    """A shift by a negative number, or by more bits than there are, gives 0; to the right the sign."""
    dtype = out_dtype(ctx)
    if dtype == "bool" or is_float(dtype):
        raise ctx.refuse(ReasonKind.DTYPE, dtype)
    bits = int("".join(c for c in dtype if c.isdigit()))
    most = bits - 1 if not left and dtype.startswith("int") else bits

    def shift(x: Expr, y: Expr) -> Expr:
        inside = tirx.all(y >= number(0, dtype), y < number(most, dtype))
        by = tirx.Select(inside, y, number(0, dtype))
        if left:
            return tirx.Select(inside, tirx.shift_left(x, by), number(0, dtype))
        far = tirx.shift_right(x, number(bits - 1, dtype)) if dtype.startswith("int") else number(0, dtype)
        return tirx.Select(inside, tirx.shift_right(x, by), far)

    return emit(ctx, shift, [a, b], dtype)


for _direction, _dunder in (("left", "__lshift__"), ("right", "__rshift__")):

    def _convert_shift(ctx: ConversionContext, a: Any, b: Any, _left: bool = _direction == "left") -> TensorValue:
        return _shift(ctx, a, b, _left)

    register(
        overload(f"aten.bitwise_{_direction}_shift.Tensor"),
        overload(f"aten.bitwise_{_direction}_shift.Tensor_Scalar"),
        overload(f"aten.bitwise_{_direction}_shift.Scalar_Tensor"),
        overload(f"aten.{_dunder}.Tensor"),
        overload(f"aten.{_dunder}.Scalar"),
    )(_convert_shift)


@register(aten.rrelu_with_noise_backward.default)
def convert_rrelu_backward(
    ctx: ConversionContext,
    grad: TensorValue,
    x: TensorValue,
    noise: TensorValue,
    lower: float,
    upper: float,
    training: bool,
    self_is_result: bool,
) -> TensorValue:
    """The noise is the slope of each element; in eval mode, and where the slopes are equal, it is their mean."""
    dtype = opmath(out_dtype(ctx))
    if training and upper - lower > 1e-6:
        return emit(ctx, lambda g, n: g * n, [grad, noise], dtype)

    def leaky(g: Expr, v: Expr, slope: Expr) -> Expr:
        return tirx.Select(v > number(0, dtype), g, g * slope)

    return emit(ctx, leaky, [grad, x, (lower + upper) / 2], dtype)


@register(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def convert_searchsorted(
    ctx: ConversionContext,
    boundaries: TensorValue,
    x: Any,
    out_int32: bool,
    right: bool,
    side: str | None,
    sorter: TensorValue | None,
) -> TensorValue:
    if sorter is not None:
        dim = boundaries.ndim - 1
        order = checked_index(ctx, sorter, boundaries.shape[dim])
        boundaries = ctx.compute(lambda t, i: ix.gather(t, dim, i), [boundaries, order])
    return _search(ctx, boundaries, x, right or side == "right")


@register(aten.bucketize.Tensor, aten.bucketize.Scalar)
def convert_bucketize(
    ctx: ConversionContext, x: Any, boundaries: TensorValue, out_int32: bool, right: bool
) -> TensorValue:
    return _search(ctx, boundaries, x, right)


def _search(ctx: ConversionContext, boundaries: TensorValue, x: Any, right: bool) -> TensorValue:
    if is_empty(boundaries.shape):
        return filled(ctx, 0)
    if isinstance(x, SymbolicNumber):
        raise ctx.refuse(ReasonKind.SYMBOLIC, "a symbolic number to search for")
    common = common_dtype([boundaries, x])
    dtype = "int8" if common == "bool" else opmath(common)
    if not isinstance(x, TensorValue):
        value = pw.operand(x, dtype)
        x = ctx.compute(lambda: te.compute((), lambda: value, name="value"), [])
    wide = [ctx.compute(rd.cast_all, [t], dtype) if t.dtype != dtype else t for t in (boundaries, x)]
    return ctx.compute(search.insertion_points, wide, right, DTYPES[ctx.fake.dtype])
