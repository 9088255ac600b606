# SPDX-License-Identifier: Apache-2.0
"""Distances: dist, cdist, pdist and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import te

from ...kinds import ReasonKind
from ..compute import distance, layout
from ..compute.pointwise import cast
from ..context import ConversionContext
from ..registry import register
from ..values import TensorValue
from .creation import filled
from .index import broadcast_shape

aten = torch.ops.aten

_FLOATS = ("float32", "float64")


def _no_columns(*tensors: TensorValue) -> bool:
    return any(isinstance(d, int) and d == 0 for t in tensors for d in t.shape)


@register(aten.dist.default, dtypes=_FLOATS)
def convert_dist(ctx: ConversionContext, a: TensorValue, b: TensorValue, p: Any) -> TensorValue:
    if a.dtype != b.dtype or not isinstance(p, int | float) or _no_columns(a, b):
        raise ctx.refuse(ReasonKind.ARGUMENTS, "different dtypes, a symbolic p or no elements")
    extents = broadcast_shape([a.shape, b.shape])
    wide = ctx.accumulator(a.dtype)

    def compute(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        def difference(_: Sequence[Any], k: Sequence[Any]) -> Any:
            left = cast(x(*layout.broadcast_index(k, x.shape)), wide)
            return left - cast(y(*layout.broadcast_index(k, y.shape)), wide)

        return distance.p_norm(extents, [], difference, float(p), wide, a.dtype)

    return ctx.compute(compute, [a, b])


def _same_batch(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> None:
    batches = zip(a.shape[:-2], b.shape[:-2], strict=True) if a.ndim == b.ndim else [(0, 1)]
    if _no_columns(a, b) or not all(ctx.symbols.equal(x, y) for x, y in batches):
        raise ctx.refuse(ReasonKind.ARGUMENTS, "batches to broadcast, or no elements")


@register(aten._cdist_forward.default, dtypes=_FLOATS)
def convert_cdist(
    ctx: ConversionContext, a: TensorValue, b: TensorValue, p: float, compute_mode: int | None
) -> TensorValue:
    """`compute_mode` chooses between this and a matrix product, which loses digits where rows are close."""
    _same_batch(ctx, a, b)
    return ctx.compute(distance.cdist, [a, b], float(p), ctx.accumulator(a.dtype))


@register(aten._cdist_backward.default, dtypes=_FLOATS)
def convert_cdist_backward(
    ctx: ConversionContext, grad: TensorValue, a: TensorValue, b: TensorValue, p: float, distances: TensorValue
) -> TensorValue:
    _same_batch(ctx, a, b)
    return ctx.compute(distance.cdist_backward, [grad, a, b, distances], float(p), ctx.accumulator(a.dtype))


@register(aten._pdist_forward.default, dtypes=_FLOATS)
def convert_pdist(ctx: ConversionContext, x: TensorValue, p: float) -> TensorValue:
    if _no_columns(x):
        return filled(ctx, 0)
    return ctx.compute(distance.pdist, [x], ctx.dims(ctx.fake.shape)[0], float(p), ctx.accumulator(x.dtype))


@register(aten._pdist_backward.default, dtypes=_FLOATS)
def convert_pdist_backward(
    ctx: ConversionContext, grad: TensorValue, x: TensorValue, p: float, distances: TensorValue
) -> TensorValue:
    if _no_columns(grad):
        return filled(ctx, 0)
    return ctx.compute(distance.pdist_backward, [grad, x, distances], float(p), ctx.accumulator(x.dtype))
