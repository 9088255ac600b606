# SPDX-License-Identifier: Apache-2.0
"""Element-wise ops: arithmetic, comparison, logic, math functions, where, casts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import tirx

from ...kinds import ReasonKind
from ..compute import checks, integer, intrinsic, program
from ..compute import pointwise as pw
from ..compute import reduce as rd
from ..compute.pointwise import Expr, number
from ..context import ConversionContext
from ..promotion import result_type
from ..registry import overload, register
from ..types import DTYPES, is_float, opmath
from ..values import SymbolicNumber, TensorValue

aten = torch.ops.aten


def emit(
    ctx: ConversionContext,
    function: Callable[..., Expr],
    operands: Sequence[Any],
    compute_dtype: str = "",
    fake: torch.Tensor | None = None,
    kernel: Callable[..., Any] = pw.elementwise,
) -> TensorValue:
    """One element-wise kernel over tensors and numbers, broadcast to the shape of the result and cast to its dtype.

    `compute_dtype` is the dtype of every operand inside; "" hands each over in its own. Numbers take `compute_dtype`.
    `kernel`: `program.elementwise` for a function that gets a Program before its operands.
    """
    fake = ctx.fake if fake is None else fake
    tensors: list[TensorValue] = []
    slots: list[int | Callable[[], Expr]] = []  # for each operand, the number of its tensor or what makes the number
    for operand in operands:
        if isinstance(operand, SymbolicNumber) and operand.python_type is torch.SymFloat:
            operand = ctx.float_param(operand)
        if isinstance(operand, TensorValue):
            slots.append(len(tensors))
            tensors.append(operand)
        elif isinstance(operand, SymbolicNumber):
            slots.append(functools.partial(pw.cast, tirx.convert(ctx.dim(operand)), compute_dtype or "int64"))
        else:
            dtype = compute_dtype or DTYPES[torch.tensor(operand).dtype]
            slots.append(functools.partial(pw.operand, operand, dtype))
    with_numbers = _with_numbers(function, len(tensors), tuple(slots))
    return ctx.compute(kernel(with_numbers), tensors, ctx.dims(fake.shape), compute_dtype, DTYPES[fake.dtype])


def _with_numbers(
    function: Callable[..., Expr], count: int, slots: Sequence[int | Callable[[], Expr]]
) -> Callable[..., Expr]:
    """`function` of the scalars of `count` tensors, a Program perhaps before them, with its numbers in their places."""

    def with_numbers(*values: Expr) -> Expr:
        program, scalars = values[: len(values) - count], values[len(values) - count :]
        return function(*program, *[scalars[s] if isinstance(s, int) else s() for s in slots])

    return with_numbers


def out_dtype(ctx: ConversionContext) -> str:
    return DTYPES[ctx.fake.dtype]


def common_dtype(values: Sequence[Any]) -> str:
    return DTYPES[result_type(values)]


def scaled(ctx: ConversionContext, function: Callable[[Expr, Expr], Expr], a: Any, b: Any, alpha: Any) -> TensorValue:
    dtype = opmath(out_dtype(ctx))
    if isinstance(alpha, SymbolicNumber) or alpha != 1:
        return emit(
            ctx, lambda x, y, k: function(x, y * k if dtype != "bool" else tirx.all(y, k)), [a, b, alpha], dtype
        )
    return emit(ctx, function, [a, b], dtype)


def _add(x: Expr, y: Expr) -> Expr:
    return tirx.any(x, y) if pw.dtype_of(x) == "bool" else x + y


def _mul(x: Expr, y: Expr) -> Expr:
    return tirx.all(x, y) if pw.dtype_of(x) == "bool" else x * y


@register(aten.add.Tensor, aten.add.Scalar)
def convert_add(ctx: ConversionContext, a: Any, b: Any, alpha: Any) -> TensorValue:
    return scaled(ctx, _add, a, b, alpha)


@register(aten.sub.Tensor, aten.sub.Scalar)
def convert_sub(ctx: ConversionContext, a: Any, b: Any, alpha: Any) -> TensorValue:
    return scaled(ctx, lambda x, y: x - y, a, b, alpha)


@register(aten.rsub.Tensor, aten.rsub.Scalar)
def convert_rsub(ctx: ConversionContext, a: Any, b: Any, alpha: Any) -> TensorValue:
    dtype = opmath(out_dtype(ctx))
    return emit(ctx, lambda x, y, k: y - x * k, [a, b, alpha], dtype)


@register(aten.mul.Tensor, aten.mul.Scalar)
def convert_mul(ctx: ConversionContext, a: Any, b: Any) -> TensorValue:
    return emit(ctx, _mul, [a, b], opmath(out_dtype(ctx)))


@register(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor)
def convert_div(ctx: ConversionContext, a: Any, b: Any) -> TensorValue:
    return emit(ctx, pw.true_div, [a, b], opmath(out_dtype(ctx)))


def nonzero_divisor(ctx: ConversionContext, b: Any, dtype: str) -> Any:
    """The divisor of an integer division, checked: a zero raises as in ATen instead of killing the process."""
    if isinstance(b, TensorValue):
        divisor = b if b.dtype == dtype else ctx.compute(rd.cast_all, [b], dtype)  # 256 as a uint8 is zero
        return ctx.compute(checks.nonzero, [divisor])
    if isinstance(b, SymbolicNumber):
        return b
    if int(b) == 0:
        raise ctx.refuse(ReasonKind.ARGUMENTS, "division by zero")
    return b


@register(aten.div.Tensor_mode, aten.div.Scalar_mode)
def convert_div_mode(ctx: ConversionContext, a: Any, b: Any, rounding_mode: str | None) -> TensorValue:
    if rounding_mode is None:
        return convert_div(ctx, a, b)
    dtype = opmath(out_dtype(ctx))
    if is_float(dtype):
        function = pw.floor_div_float if rounding_mode == "floor" else lambda x, y: tirx.trunc(x / y)
        return emit(ctx, function, [a, b], dtype)
    function = pw.floor_div_int if rounding_mode == "floor" else pw.trunc_div_int
    return emit(ctx, function, [a, nonzero_divisor(ctx, b, dtype)], dtype)


@register(aten.floor_divide.default)
def convert_floor_divide(ctx: ConversionContext, a: Any, b: Any) -> TensorValue:
    return convert_div_mode(ctx, a, b, "floor")


@register(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def convert_remainder(ctx: ConversionContext, a: Any, b: Any) -> TensorValue:
    dtype = opmath(out_dtype(ctx))
    return emit(ctx, pw.remainder, [a, b if is_float(dtype) else nonzero_divisor(ctx, b, dtype)], dtype)


@register(aten.fmod.Tensor, aten.fmod.Scalar)
def convert_fmod(ctx: ConversionContext, a: Any, b: Any) -> TensorValue:
    dtype = opmath(out_dtype(ctx))
    return emit(ctx, pw.fmod, [a, b if is_float(dtype) else nonzero_divisor(ctx, b, dtype)], dtype)


# ---- one operand, in the dtype of the result ----

_UNARY: dict[str, Callable[[Expr], Expr]] = {
    "abs": pw.absolute,
    "neg": pw.negative,
    "sign": pw.sign,
    "relu": pw.relu,
    "exp": tirx.exp,
    "exp2": tirx.exp2,
    "log": tirx.log,
    "log2": tirx.log2,
    "log10": tirx.log10,
    "log1p": tirx.log1p,
    "expm1": functools.partial(intrinsic.call, "expm1"),
    "sqrt": tirx.sqrt,
    "rsqrt": lambda x: number(1, pw.dtype_of(x)) / tirx.sqrt(x),
    "reciprocal": lambda x: number(1, pw.dtype_of(x)) / x,
    "sin": tirx.sin,
    "cos": tirx.cos,
    "tan": functools.partial(intrinsic.call, "tan"),
    "sinh": functools.partial(intrinsic.call, "sinh"),
    "cosh": functools.partial(intrinsic.call, "cosh"),
    "tanh": tirx.tanh,
    "asin": functools.partial(intrinsic.call, "asin"),
    "acos": functools.partial(intrinsic.call, "acos"),
    "atan": functools.partial(intrinsic.call, "atan"),
    "asinh": functools.partial(intrinsic.call, "asinh"),
    "acosh": functools.partial(intrinsic.call, "acosh"),
    "atanh": functools.partial(intrinsic.call, "atanh"),
    "erf": tirx.erf,
    "erfc": functools.partial(intrinsic.call, "erfc"),
    "sigmoid": pw.sigmoid,
    "floor": lambda x: tirx.floor(x) if pw.is_float(x) else x,
    "ceil": lambda x: tirx.ceil(x) if pw.is_float(x) else x,
    "trunc": lambda x: tirx.trunc(x) if pw.is_float(x) else x,
    "round": pw.round_half_even,
    "frac": lambda x: x - tirx.trunc(x),
    "square": lambda x: _mul(x, x),
    "silu": lambda x: x * pw.sigmoid(x),
    "lgamma": pw.libm("lgamma"),
}

for _name, _function in _UNARY.items():

    def _convert_unary(
        ctx: ConversionContext, x: TensorValue, _function: Callable[[Expr], Expr] = _function
    ) -> TensorValue:
        return emit(ctx, _function, [x], opmath(out_dtype(ctx)))

    register(overload(f"aten.{_name}.default"))(_convert_unary)


@register(aten.gelu.default)
def convert_gelu(ctx: ConversionContext, x: TensorValue, approximate: str) -> TensorValue:
    def exact(v: Expr) -> Expr:
        dtype = pw.dtype_of(v)
        return v * number(0.5, dtype) * (number(1, dtype) + tirx.erf(v * number(math.sqrt(0.5), dtype)))

    def by_tanh(v: Expr) -> Expr:
        dtype = pw.dtype_of(v)
        inner = number(math.sqrt(2 / math.pi), dtype) * (v + number(0.044715, dtype) * v * v * v)
        return number(0.5, dtype) * v * (number(1, dtype) + tirx.tanh(inner))

    return emit(ctx, by_tanh if approximate == "tanh" else exact, [x], opmath(out_dtype(ctx)))


@register(aten.leaky_relu.default)
def convert_leaky_relu(ctx: ConversionContext, x: TensorValue, slope: Any) -> TensorValue:
    return emit(
        ctx, lambda v, k: tirx.Select(v > number(0, pw.dtype_of(v)), v, v * k), [x, slope], opmath(out_dtype(ctx))
    )


@register(aten.elu.default)
def convert_elu(ctx: ConversionContext, x: TensorValue, alpha: Any, scale: Any, input_scale: Any) -> TensorValue:
    def elu(v: Expr, a: Expr, s: Expr, k: Expr) -> Expr:
        zero = number(0, pw.dtype_of(v))
        return tirx.Select(v > zero, v * s, intrinsic.call("expm1", v * k) * (a * s))

    return emit(ctx, elu, [x, alpha, scale, input_scale], opmath(out_dtype(ctx)))


def _clamp(v: Expr, low: Expr | None, high: Expr | None) -> Expr:
    """NaN stays NaN; where low > high the result is high."""
    clamped = v
    if low is not None:
        clamped = tirx.Select(clamped < low, low, clamped)
        clamped = tirx.Select(pw.isnan(low), low, clamped) if pw.is_float(v) else clamped
    if high is not None:
        clamped = tirx.Select(clamped > high, high, clamped)
        clamped = tirx.Select(pw.isnan(high), high, clamped) if pw.is_float(v) else clamped
    return tirx.Select(pw.isnan(v), v, clamped) if pw.is_float(v) else clamped


@register(aten.clamp.default, aten.clamp.Tensor)
def convert_clamp(ctx: ConversionContext, x: TensorValue, low: Any, high: Any) -> TensorValue:
    dtype = opmath(out_dtype(ctx))
    if low is not None and high is not None:
        return emit(ctx, _clamp, [x, low, high], dtype)
    if low is not None:
        return emit(ctx, lambda v, a: _clamp(v, a, None), [x, low], dtype)
    return emit(ctx, lambda v, b: _clamp(v, None, b), [x, high], dtype)


@register(aten.clamp_min.default, aten.clamp_min.Tensor)
def convert_clamp_min(ctx: ConversionContext, x: TensorValue, low: Any) -> TensorValue:
    return convert_clamp(ctx, x, low, None)


@register(aten.clamp_max.default, aten.clamp_max.Tensor)
def convert_clamp_max(ctx: ConversionContext, x: TensorValue, high: Any) -> TensorValue:
    return convert_clamp(ctx, x, None, high)


@register(aten.hardtanh.default)
def convert_hardtanh(ctx: ConversionContext, x: TensorValue, low: Any, high: Any) -> TensorValue:
    return convert_clamp(ctx, x, low, high)


# ---- two operands ----


@register(aten.maximum.default)
def convert_maximum(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> TensorValue:
    return emit(ctx, pw.maximum, [a, b], opmath(out_dtype(ctx)))


@register(aten.minimum.default)
def convert_minimum(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> TensorValue:
    return emit(ctx, pw.minimum, [a, b], opmath(out_dtype(ctx)))


@register(aten.atan2.default)
def convert_atan2(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> TensorValue:
    return emit(ctx, pw.libm("atan2"), [a, b], opmath(out_dtype(ctx)))


@register(aten.copysign.Tensor, aten.copysign.Scalar)
def convert_copysign(ctx: ConversionContext, a: TensorValue, b: Any) -> TensorValue:
    return emit(ctx, tirx.copysign, [a, b], opmath(out_dtype(ctx)))


@register(aten.hypot.default)
def convert_hypot(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> TensorValue:
    return emit(ctx, pw.libm("hypot"), [a, b], opmath(out_dtype(ctx)))


def _int_power(base: Expr, exponent: int) -> Expr:
    """Repeated squaring: exact for integers, and what ATen's special cases round to for small float exponents."""
    result: Expr | None = None
    square = base
    while exponent:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        if exponent:
            square = square * square
    return number(1, pw.dtype_of(base)) if result is None else result


@register(aten.pow.Tensor_Scalar)
def convert_pow_scalar(ctx: ConversionContext, x: TensorValue, exponent: Any) -> TensorValue:
    dtype = opmath(out_dtype(ctx))
    if not is_float(dtype):
        if isinstance(exponent, SymbolicNumber) or exponent < 0 or dtype == "bool":
            raise ctx.refuse(ReasonKind.ARGUMENTS, f"integer to the power {exponent}")
        return emit(ctx, lambda v: _int_power(v, int(exponent)), [x], dtype)
    special: dict[Any, Callable[[Expr], Expr]] = {
        0.5: tirx.sqrt,
        -0.5: lambda v: number(1, pw.dtype_of(v)) / tirx.sqrt(v),
        2: lambda v: v * v,
        3: lambda v: v * v * v,
        -1: lambda v: number(1, pw.dtype_of(v)) / v,
        -2: lambda v: number(1, pw.dtype_of(v)) / (v * v),
        1: lambda v: v,
        0: lambda v: number(1, pw.dtype_of(v)),
    }
    if not isinstance(exponent, SymbolicNumber) and exponent in special:
        return emit(ctx, special[exponent], [x], dtype)
    return emit(ctx, intrinsic.power, [x, exponent], dtype)


@register(aten.pow.Scalar, aten.pow.Tensor_Tensor)
def convert_pow(ctx: ConversionContext, base: Any, exponent: TensorValue) -> TensorValue:
    dtype = opmath(out_dtype(ctx))
    if not is_float(dtype):
        return emit(ctx, integer.power, [base, exponent], dtype, kernel=program.elementwise)
    return emit(ctx, intrinsic.power, [base, exponent], dtype)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):

    def _convert_compare(ctx: ConversionContext, a: Any, b: Any, _name: str = _name) -> TensorValue:
        dtype = common_dtype([a, b])
        # TVM has no order on bool.
        compute_dtype = "int8" if dtype == "bool" else opmath(dtype)
        return emit(ctx, functools.partial(pw.compare, _name), [a, b], compute_dtype)

    register(overload(f"aten.{_name}.Tensor"), overload(f"aten.{_name}.Scalar"))(_convert_compare)


def _truth(x: Expr) -> Expr:
    return pw.cast(x, "bool")


_LOGICAL: dict[str, Callable[[Expr, Expr], Expr]] = {
    "and": lambda a, b: tirx.all(_truth(a), _truth(b)),
    "or": lambda a, b: tirx.any(_truth(a), _truth(b)),
    "xor": lambda a, b: pw.differ(_truth(a), _truth(b)),
}
_BITWISE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "and": tirx.bitwise_and,
    "or": tirx.bitwise_or,
    "xor": tirx.bitwise_xor,
}

for _name, _logical in _LOGICAL.items():

    def _convert_logical(
        ctx: ConversionContext, a: Any, b: Any, _logical: Callable[[Expr, Expr], Expr] = _logical
    ) -> TensorValue:
        return emit(ctx, _logical, [a, b])

    register(overload(f"aten.logical_{_name}.default"))(_convert_logical)

    def _convert_bitwise(
        ctx: ConversionContext, a: Any, b: Any, _name: str = _name, _logical: Callable[[Expr, Expr], Expr] = _logical
    ) -> TensorValue:
        dtype = out_dtype(ctx)
        return emit(ctx, _logical if dtype == "bool" else _BITWISE[_name], [a, b], dtype)

    register(
        overload(f"aten.bitwise_{_name}.Tensor"),
        overload(f"aten.bitwise_{_name}.Scalar"),
        overload(f"aten.bitwise_{_name}.Scalar_Tensor"),
        overload(f"aten.__{_name}__.Tensor"),
        overload(f"aten.__{_name}__.Scalar"),
    )(_convert_bitwise)


@register(aten.logical_not.default)
def convert_logical_not(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    return emit(ctx, lambda v: tirx.Not(_truth(v)), [x])


@register(aten.bitwise_not.default)
def convert_bitwise_not(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    return emit(ctx, tirx.Not if x.dtype == "bool" else tirx.bitwise_not, [x])


@register(aten.isnan.default)
def convert_isnan(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    return emit(ctx, pw.isnan, [x], opmath(x.dtype))


@register(aten.isinf.default)
def convert_isinf(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    return emit(ctx, pw.isinf, [x], opmath(x.dtype))


# ---- three operands ----


@register(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def convert_where(ctx: ConversionContext, condition: TensorValue, a: Any, b: Any) -> TensorValue:
    dtype = out_dtype(ctx)
    return emit(ctx, lambda c, x, y: tirx.Select(_truth(c), pw.cast(x, dtype), pw.cast(y, dtype)), [condition, a, b])


@register(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def convert_masked_fill(ctx: ConversionContext, x: TensorValue, mask: TensorValue, value: Any) -> TensorValue:
    dtype = out_dtype(ctx)
    return emit(ctx, lambda v, m, k: tirx.Select(_truth(m), pw.cast(k, dtype), v), [x, mask, value])


@register(aten.addcmul.default)
def convert_addcmul(ctx: ConversionContext, x: TensorValue, a: TensorValue, b: TensorValue, value: Any) -> TensorValue:
    return emit(ctx, lambda v, p, q, k: v + k * p * q, [x, a, b, value], opmath(out_dtype(ctx)))


@register(aten.addcdiv.default)
def convert_addcdiv(ctx: ConversionContext, x: TensorValue, a: TensorValue, b: TensorValue, value: Any) -> TensorValue:
    return emit(ctx, lambda v, p, q, k: v + k * (p / q), [x, a, b, value], opmath(out_dtype(ctx)))


def _lerp(a: Expr, b: Expr, w: Expr) -> Expr:
    """From the nearer end, as at::native::lerp."""
    dtype = pw.dtype_of(a)
    half, one = number(0.5, dtype), number(1, dtype)
    return tirx.Select(pw.absolute(w) < half, a + w * (b - a), b - (b - a) * (one - w))


@register(aten.lerp.Scalar, aten.lerp.Tensor)
def convert_lerp(ctx: ConversionContext, a: TensorValue, b: TensorValue, weight: Any) -> TensorValue:
    return emit(ctx, _lerp, [a, b, weight], opmath(out_dtype(ctx)))


if (_fma := overload("prims.fma.default")) is not None:

    @register(_fma)
    def convert_fma(ctx: ConversionContext, a: TensorValue, b: TensorValue, c: TensorValue) -> TensorValue:
        return emit(ctx, lambda x, y, z: x * y + z, [a, b, c], opmath(out_dtype(ctx)))


# ---- copies and casts ----


@register(aten._to_copy.default)
def convert_to_copy(
    ctx: ConversionContext,
    x: TensorValue,
    dtype: torch.dtype | None,
    layout: torch.layout | None,
    device: torch.device | None,
    pin_memory: bool | None,
    non_blocking: bool,
    memory_format: torch.memory_format | None,
) -> TensorValue:
    return emit(ctx, lambda v: v, [x])


@register(overload("prims.convert_element_type.default"))
def convert_element_type(ctx: ConversionContext, x: TensorValue, dtype: torch.dtype) -> TensorValue:
    return emit(ctx, lambda v: v, [x])


@register(aten.lift_fresh_copy.default)
def convert_lift_fresh_copy(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    return emit(ctx, lambda v: v, [x])


@register(aten.clone.default)
def convert_clone(ctx: ConversionContext, x: TensorValue, memory_format: torch.memory_format | None) -> TensorValue:
    return emit(ctx, lambda v: v, [x])


@register(aten.contiguous.default)
def convert_contiguous(ctx: ConversionContext, x: TensorValue, memory_format: torch.memory_format) -> TensorValue:
    return emit(ctx, lambda v: v, [x])


@register(aten.copy.default)
def convert_copy(ctx: ConversionContext, x: TensorValue, source: TensorValue, non_blocking: bool) -> TensorValue:
    return emit(ctx, lambda v: v, [source])
