# SPDX-License-Identifier: Apache-2.0
"""Reductions over runs of rows (segment_reduce and its backward), and histc."""

from __future__ import annotations

import math
from typing import Any

import torch
from tvm import te, tirx

from ...kinds import ReasonKind
from ..compute import layout, segment
from ..compute import pointwise as pw
from ..compute import reduce as rd
from ..context import ConversionContext
from ..registry import register
from ..types import is_empty, opmath
from ..values import SymbolicNumber, TensorValue
from .pointwise import out_dtype

aten = torch.ops.aten


def _bounds(
    ctx: ConversionContext,
    x: TensorValue,
    reduce: str,
    lengths: TensorValue | None,
    offsets: TensorValue | None,
    initial: Any,
    exact: bool,
) -> tuple[TensorValue, int]:
    """(checked bounds of the runs, the axis that they run along)."""
    if reduce not in segment.REDUCTIONS or isinstance(initial, SymbolicNumber) or is_empty(x.shape):
        raise ctx.refuse(ReasonKind.ARGUMENTS, f"reduction {reduce!r}, a symbolic start or no elements")
    if offsets is not None:
        axis = offsets.ndim - 1
        return ctx.compute(segment.bounds_of_offsets, [offsets], x.shape[axis]), axis
    if lengths is None or is_empty(lengths.shape):
        raise ctx.refuse(ReasonKind.ARGUMENTS, "neither lengths nor offsets")
    axis = lengths.ndim - 1
    return ctx.compute(segment.bounds_of_lengths, [lengths], x.shape[axis], exact), axis


@register(aten.segment_reduce.default)
def convert_segment_reduce(
    ctx: ConversionContext,
    x: TensorValue,
    reduce: str,
    lengths: TensorValue | None,
    indices: TensorValue | None,
    offsets: TensorValue | None,
    axis: int,
    unsafe: bool,
    initial: Any,
) -> TensorValue:
    bounds, along = _bounds(ctx, x, reduce, lengths, offsets, initial, exact=not unsafe)
    start = None if initial is None else float(initial)
    return ctx.compute(
        segment.segment_reduce, [x, bounds], ctx.dims(ctx.fake.shape), along, reduce, start, opmath(x.dtype)
    )


@register(aten._segment_reduce_backward.default)
def convert_segment_reduce_backward(
    ctx: ConversionContext,
    grad: TensorValue,
    output: TensorValue,
    x: TensorValue,
    reduce: str,
    lengths: TensorValue | None,
    offsets: TensorValue | None,
    axis: int,
    initial: Any,
) -> TensorValue:
    bounds, along = _bounds(ctx, x, reduce, lengths, offsets, initial, exact=False)
    start = None if initial is None else float(initial)
    return ctx.compute(
        segment.segment_reduce_backward, [grad, output, x, bounds], along, reduce, start, opmath(x.dtype)
    )


@register(aten.histc.default, dtypes=["float32", "float64"])
def convert_histc(ctx: ConversionContext, x: TensorValue, bins: Any, low: Any, high: Any) -> TensorValue:
    numbers = [v for v in (low, high) if not isinstance(v, SymbolicNumber) and math.isfinite(v)]
    if len(numbers) < 2 or low > high or is_empty(x.shape):
        raise ctx.refuse(ReasonKind.ARGUMENTS, "no elements, or limits that are symbolic or no range")
    if low == high:
        extent = ctx.compute(segment.extent_of_values, [x])
    else:
        first, last = pw.number(low, x.dtype), pw.number(high, x.dtype)
        extent = ctx.compute(
            lambda: te.compute(
                (layout.const(2),), lambda k: tirx.Select(tirx.EQ(k, layout.const(0)), first, last), name="extent"
            ),
            [],
        )
    counted = ctx.compute(segment.counts, [x, extent], ctx.dims(ctx.fake.shape)[0])
    return ctx.compute(rd.cast_all, [counted], out_dtype(ctx))
