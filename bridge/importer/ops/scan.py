# SPDX-License-Identifier: Apache-2.0
"""Cumulative ops along a dim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tvm import te

from ...kinds import ReasonKind
from ..compute import layout
from ..compute import reduce as rd
from ..compute.scan import log_add_exp, scan, scan_extreme
from ..context import ConversionContext
from ..registry import register
from ..types import opmath
from ..values import TensorValue
from .pointwise import out_dtype
from .view import wrap_dim

aten = torch.ops.aten


def _cumulative(ctx: ConversionContext, x: TensorValue, dim: int, combine: Callable[[Any, Any], Any]) -> TensorValue:
    dtype = out_dtype(ctx)
    wide = ctx.accumulator(dtype)
    if x.ndim == 0:
        return ctx.compute(rd.cast_all, [x], dtype)
    # Elements are cast to the dtype of the result first, as ATen does.
    source = ctx.compute(rd.cast_all, [x], dtype) if x.dtype != dtype else x
    dim = wrap_dim(dim, x.ndim)
    result = ctx.compute(lambda t: scan(t, dim, combine, wide), [source])
    return result if wide == dtype else ctx.compute(rd.cast_all, [result], dtype)


@register(aten.cumsum.default)
def convert_cumsum(ctx: ConversionContext, x: TensorValue, dim: int, dtype: torch.dtype | None) -> TensorValue:
    return _cumulative(ctx, x, dim, lambda a, b: a + b)


@register(aten.cumprod.default)
def convert_cumprod(ctx: ConversionContext, x: TensorValue, dim: int, dtype: torch.dtype | None) -> TensorValue:
    return _cumulative(ctx, x, dim, lambda a, b: a * b)


@register(aten.logcumsumexp.default)
def convert_logcumsumexp(ctx: ConversionContext, x: TensorValue, dim: int) -> TensorValue:
    return _cumulative(ctx, x, dim, log_add_exp)


def _extreme(ctx: ConversionContext, x: TensorValue, dim: int, largest: bool) -> tuple[TensorValue, ...]:
    if x.ndim == 0:
        zero = ctx.compute(lambda: te.compute((), lambda: layout.const(0), name="zero"), [])
        return ctx.compute(layout.identity, [x]), zero
    if any(isinstance(d, int) and d == 0 for d in x.shape):
        raise ctx.refuse(ReasonKind.ARGUMENTS, "no elements")
    wide = "int8" if x.dtype == "bool" else opmath(x.dtype)
    source = x if wide == x.dtype else ctx.compute(rd.cast_all, [x], wide)
    value, where = ctx.compute_many(scan_extreme, [source], wrap_dim(dim, x.ndim), largest)
    return (value if wide == x.dtype else ctx.compute(rd.cast_all, [value], x.dtype)), where


@register(aten.cummax.default)
def convert_cummax(ctx: ConversionContext, x: TensorValue, dim: int) -> tuple[TensorValue, ...]:
    return _extreme(ctx, x, dim, largest=True)


@register(aten.cummin.default)
def convert_cummin(ctx: ConversionContext, x: TensorValue, dim: int) -> tuple[TensorValue, ...]:
    return _extreme(ctx, x, dim, largest=False)
