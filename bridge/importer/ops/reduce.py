# SPDX-License-Identifier: Apache-2.0
"""Reductions: sum, mean, var, max and min with and without indices, any, all, prod, softmax, layer norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from tvm import te

from ...kinds import ReasonKind
from ..compute import layout, norm
from ..compute import reduce as rd
from ..compute.pointwise import cast
from ..context import ConversionContext
from ..registry import register
from ..types import DTYPES, opmath
from ..values import TensorValue
from .creation import filled
from .pointwise import out_dtype

aten = torch.ops.aten


def reduces_nothing(x: TensorValue, dims: Sequence[int]) -> bool:
    """Whether a reduction runs over zero elements."""
    return any(isinstance(x.shape[d], int) and x.shape[d] == 0 for d in dims)


def _sum(ctx: ConversionContext, x: TensorValue, dims: Sequence[int] | None, keepdim: bool) -> TensorValue:
    axes = rd.normalize_dims(dims, x.ndim)
    if reduces_nothing(x, axes):
        return filled(ctx, 0)
    dtype = out_dtype(ctx)
    if x.dtype == dtype and all(layout.is_one(x.shape[d]) for d in axes):  # of one element: no loop, and fused as such
        return ctx.compute(rd.sum_of_one, [x], ctx.dims(ctx.fake.shape))
    return ctx.compute(rd.sum_as, [x], axes, keepdim, ctx.accumulator(dtype), dtype)


@register(aten.sum.default)
def convert_sum(ctx: ConversionContext, x: TensorValue, dtype: torch.dtype | None) -> TensorValue:
    return _sum(ctx, x, None, False)


@register(aten.sum.dim_IntList)
def convert_sum_dims(
    ctx: ConversionContext, x: TensorValue, dim: Sequence[int] | None, keepdim: bool, dtype: torch.dtype | None
) -> TensorValue:
    return _sum(ctx, x, dim, keepdim)


def _mean(ctx: ConversionContext, x: TensorValue, dims: Sequence[int] | None, keepdim: bool) -> TensorValue:
    axes = rd.normalize_dims(dims, x.ndim)
    if reduces_nothing(x, axes):
        return filled(ctx, math.nan)
    dtype = out_dtype(ctx)
    return ctx.compute(rd.mean, [x], axes, keepdim, ctx.accumulator(dtype), dtype)


@register(aten.mean.default)
def convert_mean(ctx: ConversionContext, x: TensorValue, dtype: torch.dtype | None) -> TensorValue:
    return _mean(ctx, x, None, False)


@register(aten.mean.dim)
def convert_mean_dims(
    ctx: ConversionContext, x: TensorValue, dim: Sequence[int] | None, keepdim: bool, dtype: torch.dtype | None
) -> TensorValue:
    return _mean(ctx, x, dim, keepdim)


def _product(ctx: ConversionContext, x: TensorValue, axes: Sequence[int], keepdim: bool) -> TensorValue:
    if reduces_nothing(x, axes):
        return filled(ctx, 1)
    dtype = out_dtype(ctx)
    return ctx.compute(rd.product, [x], axes, keepdim, ctx.accumulator(dtype), dtype)


@register(aten.prod.default)
def convert_prod(ctx: ConversionContext, x: TensorValue, dtype: torch.dtype | None) -> TensorValue:
    return _product(ctx, x, list(range(x.ndim)), False)


@register(aten.prod.dim_int)
def convert_prod_dim(
    ctx: ConversionContext, x: TensorValue, dim: int, keepdim: bool, dtype: torch.dtype | None
) -> TensorValue:
    return _product(ctx, x, rd.normalize_dims([dim], x.ndim), keepdim)


@register(aten.amax.default)
def convert_amax(ctx: ConversionContext, x: TensorValue, dim: Sequence[int], keepdim: bool) -> TensorValue:
    return ctx.compute(rd.amax, [x], rd.normalize_dims(dim, x.ndim), keepdim)


@register(aten.amin.default)
def convert_amin(ctx: ConversionContext, x: TensorValue, dim: Sequence[int], keepdim: bool) -> TensorValue:
    return ctx.compute(rd.amin, [x], rd.normalize_dims(dim, x.ndim), keepdim)


@register(aten.max.default)
def convert_max(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    return ctx.compute(rd.amax, [x], list(range(x.ndim)), False)


@register(aten.min.default)
def convert_min(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    return ctx.compute(rd.amin, [x], list(range(x.ndim)), False)


def _truth(
    ctx: ConversionContext, x: TensorValue, dims: Sequence[int] | None, keepdim: bool, every: bool
) -> TensorValue:
    axes = rd.normalize_dims(dims, x.ndim)
    if reduces_nothing(x, axes):
        return filled(ctx, every)
    dtype = out_dtype(ctx)  # uint8 for a uint8 input, else bool

    def compute(t: te.Tensor) -> te.Tensor:
        return rd.cast_all((rd.all_true if every else rd.any_true)(t, axes, keepdim), dtype)

    return ctx.compute(compute, [x])


@register(aten.any.default)
def convert_any(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    return _truth(ctx, x, None, False, every=False)


@register(aten.any.dim)
def convert_any_dim(ctx: ConversionContext, x: TensorValue, dim: int, keepdim: bool) -> TensorValue:
    return _truth(ctx, x, [dim], keepdim, every=False)


@register(aten.any.dims)
def convert_any_dims(ctx: ConversionContext, x: TensorValue, dim: Sequence[int] | None, keepdim: bool) -> TensorValue:
    return _truth(ctx, x, dim, keepdim, every=False)


@register(aten.all.default)
def convert_all(ctx: ConversionContext, x: TensorValue) -> TensorValue:
    return _truth(ctx, x, None, False, every=True)


@register(aten.all.dim)
def convert_all_dim(ctx: ConversionContext, x: TensorValue, dim: int, keepdim: bool) -> TensorValue:
    return _truth(ctx, x, [dim], keepdim, every=True)


@register(aten.all.dims)
def convert_all_dims(ctx: ConversionContext, x: TensorValue, dim: Sequence[int] | None, keepdim: bool) -> TensorValue:
    return _truth(ctx, x, dim, keepdim, every=True)


def _best(
    ctx: ConversionContext, x: TensorValue, dim: int | None, keepdim: bool, largest: bool
) -> tuple[TensorValue, ...]:
    if x.dtype in ("float16", "bfloat16"):
        wide = ctx.compute(rd.cast_all, [x], "float32")
        value, index = ctx.compute_many(rd.best_with_index, [wide], dim, keepdim, largest)
        return ctx.compute(rd.cast_all, [value], x.dtype), index
    return ctx.compute_many(rd.best_with_index, [x], dim, keepdim, largest)


def _one_dim(x: TensorValue, dim: int) -> int | None:
    return None if x.ndim == 0 else dim + x.ndim if dim < 0 else dim


@register(aten.max.dim)
def convert_max_dim(ctx: ConversionContext, x: TensorValue, dim: int, keepdim: bool) -> tuple[TensorValue, ...]:
    return _best(ctx, x, _one_dim(x, dim), keepdim, largest=True)


@register(aten.min.dim)
def convert_min_dim(ctx: ConversionContext, x: TensorValue, dim: int, keepdim: bool) -> tuple[TensorValue, ...]:
    return _best(ctx, x, _one_dim(x, dim), keepdim, largest=False)


@register(aten.argmax.default)
def convert_argmax(ctx: ConversionContext, x: TensorValue, dim: int | None, keepdim: bool) -> TensorValue:
    return _best(ctx, x, None if dim is None else _one_dim(x, dim), keepdim, largest=True)[1]


@register(aten.argmin.default)
def convert_argmin(ctx: ConversionContext, x: TensorValue, dim: int | None, keepdim: bool) -> TensorValue:
    return _best(ctx, x, None if dim is None else _one_dim(x, dim), keepdim, largest=False)[1]


def _variance(
    ctx: ConversionContext, x: TensorValue, dims: Sequence[int] | None, correction: Any, keepdim: bool
) -> tuple[TensorValue, ...]:
    axes = rd.normalize_dims(dims, x.ndim)
    if reduces_nothing(x, axes) or not axes:
        raise ctx.refuse(ReasonKind.ARGUMENTS, "variance of no elements or of a 0-d tensor")
    first = ctx.fake[0] if isinstance(ctx.fake, tuple | list) else ctx.fake
    correction = 1 if correction is None else correction
    return ctx.compute_many(
        rd.variance, [x], axes, keepdim, float(correction), ctx.accumulator(x.dtype), DTYPES[first.dtype]
    )


@register(aten.var.correction)
def convert_var(
    ctx: ConversionContext, x: TensorValue, dim: Sequence[int] | None, correction: Any, keepdim: bool
) -> TensorValue:
    return _variance(ctx, x, dim, correction, keepdim)[0]


@register(aten.var.dim)
def convert_var_dim(
    ctx: ConversionContext, x: TensorValue, dim: Sequence[int] | None, unbiased: bool, keepdim: bool
) -> TensorValue:
    return _variance(ctx, x, dim, int(unbiased), keepdim)[0]


@register(aten.var_mean.correction)
def convert_var_mean(
    ctx: ConversionContext, x: TensorValue, dim: Sequence[int] | None, correction: Any, keepdim: bool
) -> tuple[TensorValue, ...]:
    return _variance(ctx, x, dim, correction, keepdim)


@register(aten._softmax.default)
def convert_softmax(ctx: ConversionContext, x: TensorValue, dim: int, half_to_float: bool) -> TensorValue:
    if x.ndim == 0:
        return filled(ctx, 1)
    return ctx.compute(norm.softmax, [x], *_softmax_arguments(ctx, x, dim))


@register(aten._log_softmax.default)
def convert_log_softmax(ctx: ConversionContext, x: TensorValue, dim: int, half_to_float: bool) -> TensorValue:
    if x.ndim == 0:
        return filled(ctx, 0)
    return ctx.compute(norm.log_softmax, [x], *_softmax_arguments(ctx, x, dim))


def _softmax_arguments(ctx: ConversionContext, x: TensorValue, dim: int) -> tuple[int, str, str, str]:
    return dim + x.ndim if dim < 0 else dim, opmath(x.dtype), ctx.accumulator(x.dtype), out_dtype(ctx)


@register(aten.native_layer_norm.default)
def convert_layer_norm(
    ctx: ConversionContext,
    x: TensorValue,
    normalized_shape: Sequence[Any],
    weight: TensorValue | None,
    bias: TensorValue | None,
    eps: float,
) -> tuple[TensorValue, ...]:
    axis = x.ndim - len(normalized_shape)
    if reduces_nothing(x, range(x.ndim)):
        raise ctx.refuse(ReasonKind.ARGUMENTS, "no elements")
    given = [t for t in (weight, bias) if t is not None]
    has_weight, has_bias = weight is not None, bias is not None
    dtypes = opmath(x.dtype), ctx.accumulator(x.dtype), x.dtype, DTYPES[ctx.fake[1].dtype]

    def compute(t: te.Tensor, *parameters: te.Tensor) -> list[te.Tensor]:
        rest = list(parameters)
        w = rest.pop(0) if has_weight else None
        b = rest.pop(0) if has_bias else None
        return norm.layer_norm(t, w, b, axis, eps, *dtypes)

    return ctx.compute_many(compute, [x, *given])


@register(aten._weight_norm_interface_backward.default)
def convert_weight_norm_backward(
    ctx: ConversionContext, grad: TensorValue, v: TensorValue, g: TensorValue, norms: TensorValue, dim: int
) -> tuple[TensorValue, ...]:
    """(gradient of v, gradient of g) of w = g v / |v|, the norm over all dims but `dim`."""
    if reduces_nothing(v, range(v.ndim)):
        raise ctx.refuse(ReasonKind.ARGUMENTS, "no elements")
    kept = dim + v.ndim if dim < 0 else dim
    axes = [d for d in range(v.ndim) if d != kept]
    dtype = opmath(v.dtype)

    def compute(dw: te.Tensor, v: te.Tensor, g: te.Tensor, n: te.Tensor) -> list[te.Tensor]:
        def product(*i: Any) -> Any:
            return cast(dw(*i), "float64") * cast(v(*i), "float64")

        total = te.compute(v.shape, product, name="products")
        dots = rd.sum_as(total, axes, True, "float64", dtype)

        def for_v(*i: Any) -> Any:
            at = [k if d == kept else layout.const(0) for d, k in enumerate(i)]
            norm = cast(n(*at), dtype)
            rest = cast(dw(*i), dtype) - cast(v(*i), dtype) * (dots(*at) / (norm * norm))
            return cast(cast(g(*at), dtype) / norm * rest, str(v.dtype))

        def for_g(*i: Any) -> Any:
            return cast(dots(*i) / cast(n(*i), dtype), str(g.dtype))

        return [te.compute(v.shape, for_v, name="grad_v"), te.compute(g.shape, for_g, name="grad_g")]

    return ctx.compute_many(compute, [grad, v, g, norms])
