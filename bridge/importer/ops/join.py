# SPDX-License-Identifier: Apache-2.0
"""cat, stack, flip, repeat, and writes into slices: slice_scatter, select_scatter, diagonal_scatter, pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import te, tirx

from ...kinds import ReasonKind
from ..compute import layout
from ..compute import pointwise as pw
from ..compute.stack import stacked
from ..context import ConversionContext
from ..registry import register
from ..types import DTYPES
from ..values import TensorValue
from .view import select_position, slice_start, wrap_dim

aten = torch.ops.aten

#: Parts of a concatenation from which on each is copied: an element's expression tests for each whether it is its own.
MANY = 16


def _has_elements(t: TensorValue) -> bool:
    return not any(isinstance(d, int) and d == 0 for d in t.shape)


@register(aten.cat.default)
def convert_cat(ctx: ConversionContext, tensors: Sequence[TensorValue], dim: int) -> TensorValue:
    """Tensors without elements (also ATen's legacy 1-d empty one) are left out."""
    rank = len(ctx.fake.shape)
    dim = wrap_dim(dim, rank)
    parts = [t for t in tensors if _has_elements(t)]
    shape = ctx.dims(ctx.fake.shape)
    dtype = DTYPES[ctx.fake.dtype]
    known = all(isinstance(n, int) for t in parts for n in t.shape) and all(t.dtype == dtype for t in parts)
    if dim == 0 and known and len(parts) >= MANY:
        return ctx.compute(stacked, parts)

    def compute(*inputs: te.Tensor) -> te.Tensor:
        return layout.concatenate(inputs, dim, dtype, shape[dim])

    return ctx.compute(compute, parts)


@register(aten.flip.default)
def convert_flip(ctx: ConversionContext, x: TensorValue, dims: Sequence[int]) -> TensorValue:
    return ctx.compute(layout.flip, [x], [wrap_dim(d, x.ndim) for d in dims] if x.ndim else [])


@register(aten.repeat.default)
def convert_repeat(ctx: ConversionContext, x: TensorValue, repeats: Sequence[Any]) -> TensorValue:
    shape = ctx.dims(ctx.fake.shape)
    lead = len(shape) - x.ndim

    def compute(t: te.Tensor) -> te.Tensor:
        def index(*i: Any) -> list[Any]:
            return [
                layout.const(0) if layout.is_one(size) else tirx.floormod(i[lead + d], size)
                for d, size in enumerate(t.shape)
            ]

        return layout.gather_by(t, shape, index, "repeat")

    return ctx.compute(compute, [x])


@register(aten.slice_scatter.default)
def convert_slice_scatter(
    ctx: ConversionContext, x: TensorValue, source: TensorValue, dim: int, start: Any, end: Any, step: Any
) -> TensorValue:
    dim = wrap_dim(dim, x.ndim)
    begin = slice_start(ctx, start, x.shape[dim])
    stride = ctx.dim(step)
    if not _has_elements(source):
        return ctx.compute(layout.identity, [x])

    def compute(t: te.Tensor, s: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            offset = i[dim] - begin
            inside = tirx.all(offset >= 0, offset < s.shape[dim] * stride)
            position = offset if _is(stride, 1) else tirx.floordiv(offset, stride)
            if not _is(stride, 1):
                inside = tirx.all(inside, tirx.EQ(tirx.floormod(offset, stride), layout.const(0)))
            value = pw.cast(s(*[position if d == dim else k for d, k in enumerate(i)]), str(t.dtype))
            return tirx.if_then_else(inside, value, t(*i))

        return te.compute(t.shape, element, name="slice_scatter")

    return ctx.compute(compute, [x, source])


def _is(value: Any, number: int) -> bool:
    return isinstance(value, int | tirx.IntImm) and int(value) == number


@register(aten.select_scatter.default)
def convert_select_scatter(
    ctx: ConversionContext, x: TensorValue, source: TensorValue, dim: int, index: Any
) -> TensorValue:
    dim = wrap_dim(dim, x.ndim)
    position = select_position(ctx, index, x.shape[dim])

    def compute(t: te.Tensor, s: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            value = pw.cast(s(*i[:dim], *i[dim + 1 :]), str(t.dtype))
            return tirx.if_then_else(
                tirx.EQ(i[dim], tirx.const(position, "int64") if isinstance(position, int) else position), value, t(*i)
            )

        return te.compute(t.shape, element, name="select_scatter")

    return ctx.compute(compute, [x, source])


@register(aten.diagonal_scatter.default)
def convert_diagonal_scatter(
    ctx: ConversionContext, x: TensorValue, source: TensorValue, offset: int, dim1: int, dim2: int
) -> TensorValue:
    first, second = wrap_dim(dim1, x.ndim), wrap_dim(dim2, x.ndim)
    if not _has_elements(source):
        return ctx.compute(layout.identity, [x])
    kept = [d for d in range(x.ndim) if d not in (first, second)]

    def compute(t: te.Tensor, s: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            along = i[first] if offset >= 0 else i[second]
            value = pw.cast(s(*[i[d] for d in kept], along), str(t.dtype))
            return tirx.if_then_else(tirx.EQ(i[second] - i[first], layout.const(offset)), value, t(*i))

        return te.compute(t.shape, element, name="diagonal_scatter")

    return ctx.compute(compute, [x, source])


@register(aten.constant_pad_nd.default)
def convert_constant_pad(ctx: ConversionContext, x: TensorValue, pad: Sequence[Any], value: Any) -> TensorValue:
    """`pad` starts from the last dim: (left, right) each; negative ones crop."""
    if not _has_elements(x):
        raise ctx.refuse(ReasonKind.ARGUMENTS, "no elements")
    before = [0] * x.ndim
    amounts = list(ctx.dims(pad))
    for k in range(len(amounts) // 2):
        before[x.ndim - 1 - k] = amounts[2 * k]
    shape = ctx.dims(ctx.fake.shape)
    fill = pw.number(value, x.dtype)
    starts = tuple(before)

    def compute(t: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            index = [k if _is(b, 0) else k - b for k, b in zip(i, starts, strict=True)]
            inside = [c for k, b, size in zip(index, before, t.shape, strict=True) for c in (k >= 0, k < size)]
            return tirx.if_then_else(tirx.all(*inside), t(*index), fill)

        return te.compute(tuple(shape), element, name="pad")

    return ctx.compute(compute, [x])


def _triangle(ctx: ConversionContext, x: TensorValue, diagonal: int, lower: bool) -> TensorValue:
    def compute(t: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            offset = i[-1] - i[-2]
            keep = offset <= diagonal if lower else offset >= diagonal
            return tirx.Select(keep, t(*i), pw.number(0, str(t.dtype)))

        return te.compute(t.shape, element, name="triangle")

    return ctx.compute(compute, [x])


@register(aten.tril.default)
def convert_tril(ctx: ConversionContext, x: TensorValue, diagonal: int) -> TensorValue:
    return _triangle(ctx, x, diagonal, lower=True)


@register(aten.triu.default)
def convert_triu(ctx: ConversionContext, x: TensorValue, diagonal: int) -> TensorValue:
    return _triangle(ctx, x, diagonal, lower=False)
