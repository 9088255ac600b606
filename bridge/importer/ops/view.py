# SPDX-License-Identifier: Apache-2.0
"""Views and other ops that move no arithmetic: view, permute, expand, slice, select, diagonal, ..."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import tirx

from ...kinds import Kind, ReasonKind
from ..compute import layout
from ..context import ConversionContext
from ..registry import register
from ..values import TensorValue

aten = torch.ops.aten


def wrap_dim(dim: int, rank: int) -> int:
    """A dim counted from the end becomes one counted from the start."""
    return dim + max(rank, 1) if dim < 0 else dim


def _output_dims(ctx: ConversionContext) -> tuple[Any, ...]:
    return ctx.dims(ctx.fake.shape)


@register(aten.alias_copy.default, aten._conj_physical.default)
@register(aten.alias.default, aten.detach.default, aten.lift_fresh.default, kind=Kind.METADATA)
def convert_alias(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    return ctx.compute(layout.identity, [x])


@register(aten.view_copy.default)
@register(aten.view.default, aten._unsafe_view.default, aten.reshape.default, kind=Kind.METADATA)
def convert_view(ctx: ConversionContext, x: TensorValue, size: Sequence[Any]) -> TensorValue:
    return ctx.compute(layout.reshape, [x], _output_dims(ctx))


@register(aten._reshape_alias.default, kind=Kind.METADATA)
def convert_reshape_alias(
    ctx: ConversionContext, x: TensorValue, size: Sequence[Any], stride: Sequence[Any]
) -> TensorValue:
    return ctx.compute(layout.reshape, [x], _output_dims(ctx))


@register(aten.permute_copy.default)
@register(aten.permute.default, kind=Kind.METADATA)
def convert_permute(ctx: ConversionContext, x: TensorValue, dims: Sequence[int]) -> TensorValue:
    return ctx.compute(layout.permute, [x], [wrap_dim(d, x.ndim) for d in dims])


@register(aten.transpose.int, kind=Kind.METADATA)
def convert_transpose(ctx: ConversionContext, x: TensorValue, dim0: int, dim1: int) -> TensorValue:
    order = list(range(x.ndim))
    if x.ndim:
        a, b = wrap_dim(dim0, x.ndim), wrap_dim(dim1, x.ndim)
        order[a], order[b] = order[b], order[a]
    return ctx.compute(layout.permute, [x], order)


@register(aten.t.default, kind=Kind.METADATA)
def convert_t(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    return ctx.compute(layout.permute, [x], list(range(x.ndim))[::-1])


@register(aten.expand_copy.default)
@register(aten.expand.default, kind=Kind.METADATA)
def convert_expand(ctx: ConversionContext, x: TensorValue, size: Sequence[Any], implicit: bool) -> TensorValue:
    return ctx.compute(layout.expand, [x], _output_dims(ctx))


@register(aten.unsqueeze_copy.default)
@register(aten.unsqueeze.default, kind=Kind.METADATA)
def convert_unsqueeze(ctx: ConversionContext, x: TensorValue, dim: int) -> TensorValue:
    return ctx.compute(layout.unsqueeze, [x], dim + x.ndim + 1 if dim < 0 else dim)


def _squeeze(ctx: ConversionContext, x: TensorValue, dims: Sequence[int]) -> TensorValue:
    dropped = [d for d in {wrap_dim(d, x.ndim) for d in dims} if d < x.ndim and layout.is_one(x.shape[d])]
    return ctx.compute(layout.squeeze, [x], dropped)


@register(aten.squeeze.default, kind=Kind.METADATA)
def convert_squeeze(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    return _squeeze(ctx, x, range(x.ndim))


@register(aten.squeeze.dim, kind=Kind.METADATA)
def convert_squeeze_dim(ctx: ConversionContext, x: TensorValue, dim: int) -> TensorValue:
    return _squeeze(ctx, x, [dim])


@register(aten.squeeze.dims, kind=Kind.METADATA)
def convert_squeeze_dims(ctx: ConversionContext, x: TensorValue, dims: Sequence[int]) -> TensorValue:
    return _squeeze(ctx, x, dims)


def slice_start(ctx: ConversionContext, start: Any, size: Any) -> Any:
    """The first index of a slice, as ATen clamps it: counted from the end where negative, then into [0, size]."""
    if start is None:
        return 0
    begin = ctx.dim(start)
    if isinstance(begin, int) and isinstance(size, int):
        return max(begin + size, 0) if begin < 0 else min(begin, size)
    from_end = tirx.max(begin + size, layout.const(0))
    if isinstance(begin, int):  # a start past the end leaves nothing to read
        return from_end if begin < 0 else begin
    return begin if ctx.symbols.non_negative(begin) else tirx.Select(begin < 0, from_end, begin)


@register(aten.slice_copy.Tensor)
@register(aten.slice.Tensor, kind=Kind.METADATA)
def convert_slice(ctx: ConversionContext, x: TensorValue, dim: int, start: Any, end: Any, step: Any) -> TensorValue:
    dim = wrap_dim(dim, x.ndim)
    length = _output_dims(ctx)[dim]
    return ctx.compute(layout.slice_dim, [x], dim, slice_start(ctx, start, x.shape[dim]), ctx.dim(step), length)


def select_position(ctx: ConversionContext, index: Any, size: Any) -> Any:
    position = ctx.dim(index)
    if isinstance(position, int):
        return position + size if position < 0 else position
    return position if ctx.symbols.non_negative(position) else tirx.Select(position < 0, position + size, position)


@register(aten.select_copy.int)
@register(aten.select.int, kind=Kind.METADATA)
def convert_select(ctx: ConversionContext, x: TensorValue, dim: int, index: Any) -> TensorValue:
    dim = wrap_dim(dim, x.ndim)
    return ctx.compute(layout.select, [x], dim, select_position(ctx, index, x.shape[dim]))


@register(aten.diagonal_copy.default)
@register(aten.diagonal.default, kind=Kind.METADATA)
def convert_diagonal(ctx: ConversionContext, x: TensorValue, offset: int, dim1: int, dim2: int) -> TensorValue:
    dims = wrap_dim(dim1, x.ndim), wrap_dim(dim2, x.ndim)
    return ctx.compute(layout.diagonal, [x], offset, *dims, _output_dims(ctx)[-1])


@register(aten.unfold.default, kind=Kind.METADATA)
def convert_unfold(ctx: ConversionContext, x: TensorValue, dimension: int, size: int, step: int) -> TensorValue:
    if x.ndim == 0:
        return ctx.compute(layout.reshape, [x], _output_dims(ctx))
    dim = wrap_dim(dimension, x.ndim)
    return ctx.compute(layout.unfold, [x], dim, _output_dims(ctx)[dim], size, step)


@register(aten.as_strided_copy.default)
@register(aten.as_strided.default, kind=Kind.METADATA)
def convert_as_strided(
    ctx: ConversionContext, x: TensorValue, size: Sequence[Any], stride: Sequence[Any], offset: Any
) -> TensorValue:
    """Reads the memory of the storage in which the tensor lies, whose variable is row-major over the dims in memory
    order.

    One whose memory is not laid out as eager's refuses the whole graph: a call into ATen would read a contiguous copy.
    """
    strided = x.strided
    if strided is None or (strided.storage.input is not None and not strided.storage.dense):
        detail = "as_strided of a tensor whose memory is not laid out as eager's"
        raise ctx.cannot(detail, ctx.node, ReasonKind.ARGUMENTS)
    fake = ctx.node.args[0].meta["val"]  # type: ignore[union-attr]  # a tensor node
    start = fake.storage_offset() if offset is None else offset
    relative = ctx.dim(start) - ctx.dim(strided.storage.offset)
    storage = TensorValue(strided.storage.var, tuple(strided.storage.var.ty.shape.values), x.dtype)
    return ctx.compute(layout.as_strided, [storage], _output_dims(ctx), ctx.dims(stride), relative)


def _pieces(ctx: ConversionContext, x: TensorValue, dim: int) -> list[TensorValue]:
    dim = wrap_dim(dim, x.ndim)
    pieces: list[TensorValue] = []
    start: Any = 0
    for fake in ctx.fake:
        length = ctx.dim(fake.shape[dim])
        empty = isinstance(length, int) and length == 0
        pieces.append(ctx.empty(fake) if empty else ctx.compute(layout.slice_dim, [x], dim, start, 1, length))
        start = start + length
    return pieces


@register(aten.split.Tensor, kind=Kind.METADATA)
def convert_split(ctx: ConversionContext, x: TensorValue, split_size: Any, dim: int) -> tuple[TensorValue, ...]:
    return tuple(_pieces(ctx, x, dim))


@register(aten.split_with_sizes.default, kind=Kind.METADATA)
def convert_split_with_sizes(
    ctx: ConversionContext, x: TensorValue, sizes: Sequence[Any], dim: int
) -> tuple[TensorValue, ...]:
    return tuple(_pieces(ctx, x, dim))


@register(aten.unbind_copy.int)
@register(aten.unbind.int, kind=Kind.METADATA)
def convert_unbind(ctx: ConversionContext, x: TensorValue, dim: int) -> tuple[TensorValue, ...]:
    dim = wrap_dim(dim, x.ndim)
    return tuple(ctx.compute(layout.select, [x], dim, k) for k in range(len(ctx.fake)))


@register(aten.narrow_copy.default)
def convert_narrow_copy(ctx: ConversionContext, x: TensorValue, dim: int, start: Any, length: Any) -> TensorValue:
    return convert_slice(ctx, x, dim, start, None, 1)
