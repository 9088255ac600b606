# SPDX-License-Identifier: Apache-2.0
"""sort, topk, kthvalue, median, mode: a stable sort along a dim, and what is read off it."""

from __future__ import annotations

from typing import Any

import torch
from tvm import te

from ...kinds import ReasonKind
from ..compute import layout
from ..compute import reduce as rd
from ..compute import sort as st
from ..context import ConversionContext
from ..registry import register
from ..types import opmath
from ..values import TensorValue
from .view import wrap_dim

aten = torch.ops.aten

Pair = tuple[TensorValue, ...]


def _sortable(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    """`x` in a dtype with an order: bool as int8, halves as float32. Refuses a tensor without elements."""
    if any(isinstance(d, int) and d == 0 for d in x.shape):
        raise ctx.refuse(ReasonKind.ARGUMENTS, "no elements")
    dtype = "int8" if x.dtype == "bool" else opmath(x.dtype)
    return x if dtype == x.dtype else ctx.compute(rd.cast_all, [x], dtype)


def _scalar(ctx: ConversionContext, x: TensorValue) -> Pair:
    """What every op here gives for a 0-d tensor: itself, at index 0."""
    zero = ctx.compute(lambda: te.compute((), lambda: layout.const(0), name="zero"), [])
    return ctx.compute(layout.identity, [x]), zero


def _order(ctx: ConversionContext, x: TensorValue, dim: int, descending: bool) -> TensorValue:
    return ctx.compute(st.argsort, [_sortable(ctx, x)], dim, descending)


def _sort(ctx: ConversionContext, x: TensorValue, dim: int, descending: bool) -> Pair:
    if x.ndim == 0:
        return _scalar(ctx, x)
    dim = wrap_dim(dim, x.ndim)
    order = _order(ctx, x, dim, descending)
    return ctx.compute(st.take_along, [x, order], dim), order


@register(aten.sort.default)
def convert_sort(ctx: ConversionContext, x: TensorValue, dim: int, descending: bool) -> Pair:
    return _sort(ctx, x, dim, descending)


@register(aten.sort.stable)
def convert_stable_sort(
    ctx: ConversionContext, x: TensorValue, stable: bool | None, dim: int, descending: bool
) -> Pair:
    return _sort(ctx, x, dim, descending)


@register(aten.topk.default)
def convert_topk(ctx: ConversionContext, x: TensorValue, k: Any, dim: int, largest: bool, is_sorted: bool) -> Pair:
    """Sorted in either case: ATen promises no order for `sorted=False`."""
    if x.ndim == 0:
        return _scalar(ctx, x)
    dim = wrap_dim(dim, x.ndim)
    count = ctx.dims(ctx.fake[0].shape)[dim]
    if isinstance(count, int) and count == 0:
        return ctx.empty(ctx.fake[0]), ctx.empty(ctx.fake[1])
    order = ctx.compute(st.first_along, [_order(ctx, x, dim, largest)], dim, count)
    return ctx.compute(st.take_along, [x, order], dim), order


@register(aten.kthvalue.default)
def convert_kthvalue(ctx: ConversionContext, x: TensorValue, k: Any, dim: int, keepdim: bool) -> Pair:
    if x.ndim == 0:
        return _scalar(ctx, x)
    dim = wrap_dim(dim, x.ndim)
    rank = layout.const(0) + ctx.dim(k) - 1
    return ctx.compute_many(st.pick, [x, _order(ctx, x, dim, False)], dim, rank, keepdim)


def _median(ctx: ConversionContext, x: TensorValue, dim: int, keepdim: bool, ignore_nan: bool) -> Pair:
    if x.ndim == 0:
        return _scalar(ctx, x)
    dim = wrap_dim(dim, x.ndim)
    order = _order(ctx, x, dim, False)
    counts = ctx.compute(st.nan_count, [x], dim)
    rank = ctx.compute(st.median_rank, [x, counts], dim, ignore_nan)
    return ctx.compute_many(lambda t, o, r: st.pick(t, o, dim, r, keepdim), [x, order, rank])


@register(aten.median.dim)
def convert_median_dim(ctx: ConversionContext, x: TensorValue, dim: int, keepdim: bool) -> Pair:
    return _median(ctx, x, dim, keepdim, ignore_nan=False)


@register(aten.nanmedian.dim)
def convert_nanmedian_dim(ctx: ConversionContext, x: TensorValue, dim: int, keepdim: bool) -> Pair:
    return _median(ctx, x, dim, keepdim, ignore_nan=True)


def _flat(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    size: Any = 1
    for d in x.shape:
        size = size * d
    return ctx.compute(layout.reshape, [x], [size])


@register(aten.median.default)
def convert_median(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    return _median(ctx, _flat(ctx, x), 0, False, ignore_nan=False)[0]


@register(aten.nanmedian.default)
def convert_nanmedian(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    return _median(ctx, _flat(ctx, x), 0, False, ignore_nan=True)[0]


@register(aten.mode.default)
def convert_mode(ctx: ConversionContext, x: TensorValue, dim: int, keepdim: bool) -> Pair:
    if x.ndim == 0:
        return _scalar(ctx, x)
    dim = wrap_dim(dim, x.ndim)
    comparable = _sortable(ctx, x)
    order = ctx.compute(st.argsort, [comparable], dim, False)
    ranked = ctx.compute(st.take_along, [comparable, order], dim)
    rank = ctx.compute(st.mode, [ctx.compute(st.occurrences, [ranked], dim)], dim)
    return ctx.compute_many(lambda t, o, r: st.pick(t, o, dim, r, keepdim), [x, order, rank])
