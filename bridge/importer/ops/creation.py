# SPDX-License-Identifier: Apache-2.0
"""Tensors made from nothing: full, arange, zeros, empty, scalar_tensor, ..."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import te, tirx

from ..compute import index as ix
from ..compute import pointwise as pw
from ..context import ConversionContext
from ..registry import overload, register
from ..types import DTYPES, is_float
from ..values import SymbolicNumber, TensorValue

aten = torch.ops.aten


def filled(ctx: ConversionContext, value: Any) -> TensorValue:
    """A tensor of the node's shape and dtype with every element `value`."""
    dtype = DTYPES[ctx.fake.dtype]
    shape = ctx.dims(ctx.fake.shape)
    if isinstance(value, SymbolicNumber) and value.python_type is torch.SymFloat:
        value = ctx.float_param(value)
    if isinstance(value, TensorValue):
        rank = value.ndim
        return ctx.compute(lambda v: te.compute(shape, lambda *_: pw.cast(v(*[0] * rank), dtype), name="full"), [value])
    if isinstance(value, SymbolicNumber):
        constant = functools.partial(pw.cast, tirx.convert(ctx.dim(value)), dtype)
    else:
        constant = functools.partial(pw.operand, value, dtype)
    return ctx.compute(lambda: te.compute(shape, lambda *_: constant(), name="full"), [])


@register(aten.full.default)
def convert_full(ctx: ConversionContext, size: Sequence[Any], value: Any, *_: Any) -> TensorValue:
    return filled(ctx, value)


@register(aten.full_like.default, aten.fill.Scalar, aten.fill.Tensor)
def convert_full_like(ctx: ConversionContext, x: TensorValue, value: Any, *_: Any) -> TensorValue:
    return filled(ctx, value)


@register(aten.new_full.default)
def convert_new_full(ctx: ConversionContext, x: TensorValue, size: Sequence[Any], value: Any, *_: Any) -> TensorValue:
    return filled(ctx, value)


@register(aten.scalar_tensor.default)
def convert_scalar_tensor(ctx: ConversionContext, value: Any, *_: Any) -> TensorValue:
    return filled(ctx, value)


def _constant(value: int) -> Callable[..., TensorValue]:
    def convert(ctx: ConversionContext, *_: Any) -> TensorValue:
        return filled(ctx, value)

    return convert


# Memory that is never read before it is written is zero here: as good as any other content.
for _name, _value in {
    "zeros.default": 0, "zeros_like.default": 0, "new_zeros.default": 0, "ones.default": 1, "ones_like.default": 1,
    "new_ones.default": 1, "empty.memory_format": 0, "empty_like.default": 0, "new_empty.default": 0,
    "empty_strided.default": 0, "new_empty_strided.default": 0, "zero.default": 0, "empty_permuted.default": 0,
    "_efficientzerotensor.default": 0,
}.items():  # fmt: skip
    register(overload(f"aten.{_name}"))(_constant(_value))


@register(aten.arange.start_step)
def convert_arange(ctx: ConversionContext, start: Any, end: Any, step: Any, *_: Any) -> TensorValue:
    """start + i * step in the accumulate type of ATen's kernel: int64 for integers, double for floats."""
    dtype = DTYPES[ctx.fake.dtype]
    wide = "float64" if is_float(dtype) else "int64"
    shape = ctx.dims(ctx.fake.shape)
    tensors: list[TensorValue] = []
    slots: list[Any] = []
    for value in (start, step):
        if isinstance(value, SymbolicNumber) and value.python_type is torch.SymFloat:
            slots.append(len(tensors))
            tensors.append(ctx.float_param(value))
        elif isinstance(value, SymbolicNumber):
            slots.append(pw.cast(tirx.convert(ctx.dim(value)), wide))
        else:
            slots.append(pw.number(value, wide))

    def compute(*parameters: te.Tensor) -> te.Tensor:
        first, stride = (pw.cast(parameters[s](), wide) if isinstance(s, int) else s for s in slots)
        return te.compute(shape, lambda i: pw.cast(first + pw.cast(i, wide) * stride, dtype), name="arange")

    return ctx.compute(compute, tensors)


@register(aten.arange.default)
def convert_arange_end(ctx: ConversionContext, end: Any, *_: Any) -> TensorValue:
    return convert_arange(ctx, 0, end, 1)


@register(aten.arange.start)
def convert_arange_start(ctx: ConversionContext, start: Any, end: Any, *_: Any) -> TensorValue:
    return convert_arange(ctx, start, end, 1)


if (_iota := overload("prims.iota.default")) is not None:

    @register(_iota)
    def convert_iota(ctx: ConversionContext, length: Any, start: Any, step: Any, *_: Any) -> TensorValue:
        return convert_arange(ctx, start, None, step)


@register(aten.tril_indices.default)
def convert_tril_indices(ctx: ConversionContext, rows: Any, columns: Any, offset: Any, *_: Any) -> TensorValue:
    return _triangle(ctx, rows, columns, offset, upper=False)


@register(aten.triu_indices.default)
def convert_triu_indices(ctx: ConversionContext, rows: Any, columns: Any, offset: Any, *_: Any) -> TensorValue:
    return _triangle(ctx, rows, columns, offset, upper=True)


def _triangle(ctx: ConversionContext, rows: Any, columns: Any, offset: Any, upper: bool) -> TensorValue:
    sizes, shape = ctx.dims([rows, columns, offset]), ctx.dims(ctx.fake.shape)
    return ctx.compute(ix.triangle_indices, [], *sizes, shape, upper, DTYPES[ctx.fake.dtype])
