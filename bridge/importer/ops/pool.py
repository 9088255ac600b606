# SPDX-License-Identifier: Apache-2.0
"""Pooling: max with indices, average, adaptive, over one to three dims, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import te

from ...kinds import ReasonKind
from ..compute import index as ix
from ..compute import layout, max_pool, pool
from ..compute import pointwise as pw
from ..compute import reduce as rd
from ..compute.window import Axis
from ..context import ConversionContext
from ..registry import overload, register
from ..types import is_empty, opmath
from ..values import TensorValue
from .index import add, checked_index

aten = torch.ops.aten


def each_dim(ctx: ConversionContext, values: Sequence[Any] | int, rank: int) -> list[int]:
    """One int a spatial dim: a single one stands for all."""
    given: list[Any] = list(values) if isinstance(values, list | tuple) else [values]
    given = given * rank if len(given) == 1 else given
    if not all(isinstance(v, int) for v in given):
        raise ctx.refuse(ReasonKind.SYMBOLIC, "a symbolic window")
    return given


def _sliding(
    ctx: ConversionContext,
    shape: Sequence[Any],
    counts: Sequence[Any],
    rank: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
) -> list[pool.Window]:
    kernels = each_dim(ctx, kernel, rank)
    strides = each_dim(ctx, stride, rank) if stride else kernels
    arguments = kernels, strides, each_dim(ctx, padding, rank), each_dim(ctx, dilation, rank)
    return [pool.sliding(s, c, *a) for s, c, *a in zip(shape[-rank:], counts[-rank:], *arguments, strict=True)]


def _shape(ctx: ConversionContext, output: int | None = None) -> tuple[Any, ...]:
    return ctx.dims((ctx.fake if output is None else ctx.fake[output]).shape)


def _widened(
    ctx: ConversionContext, x: TensorValue, largest: Callable[[TensorValue], tuple[TensorValue, ...]]
) -> tuple[TensorValue, ...]:
    """`largest(x)`, halves in float32.

    In kernels of their own: TVM's lowering of bfloat16 misses a cast inside a reduction with several results.
    """
    wide = opmath(x.dtype)
    if wide == x.dtype:
        return largest(x)
    value, where = largest(ctx.compute(rd.cast_all, [x], wide))
    return ctx.compute(rd.cast_all, [value], x.dtype), where


def _largest(ctx: ConversionContext, x: TensorValue, windows: Sequence[pool.Window]) -> tuple[TensorValue, ...]:
    return _widened(ctx, x, lambda wide: ctx.compute_many(pool.max_pool, [wide], windows))


def _along_rows(
    ctx: ConversionContext,
    sizes: Sequence[Any],
    counts: Sequence[Any],
    rank: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
) -> list[Axis] | None:
    """The windows that compute/max_pool.py takes; None where there is no element or a window has too many."""
    arguments = [each_dim(ctx, values, rank) for values in (kernel, stride or kernel, padding, dilation)]
    sizes, counts = sizes[-rank:], counts[-rank:]
    if 0 in [n for n in (*sizes, *counts) if isinstance(n, int)]:
        return None
    axes = [Axis(*numbers) for numbers in zip(sizes, counts, *arguments, strict=True)]
    return axes if max_pool.fits(axes) else None


def _max_pool(rank: int) -> Callable[..., tuple[TensorValue, ...]]:
    def convert(
        ctx: ConversionContext, x: TensorValue, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
    ) -> tuple[TensorValue, ...]:
        axes = _along_rows(ctx, x.shape, _shape(ctx, 0), rank, kernel, stride, padding, dilation)
        if axes is not None:
            return _widened(ctx, x, lambda wide: ctx.compute_many(max_pool.max_pool, [wide], axes))
        windows = _sliding(ctx, x.shape, _shape(ctx, 0), rank, kernel, stride, padding, dilation)
        return _largest(ctx, x, windows)

    return convert


def _max_pool_backward(rank: int) -> Callable[..., TensorValue]:
    def convert(
        ctx: ConversionContext,
        grad: TensorValue,
        x: TensorValue,
        kernel: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        indices: TensorValue,
    ) -> TensorValue:
        axes = _along_rows(ctx, x.shape, grad.shape, rank, kernel, stride, padding, dilation)
        if axes is not None:
            arguments = _shape(ctx), axes, opmath(grad.dtype), grad.dtype
            return ctx.compute(max_pool.gradient, [grad, indices], *arguments)
        windows = _sliding(ctx, x.shape, grad.shape, rank, kernel, stride, padding, dilation)
        return ctx.compute(
            pool.max_pool_backward, [grad, indices], _shape(ctx), windows, opmath(grad.dtype), grad.dtype
        )

    return convert


register(aten.max_pool2d_with_indices.default)(_max_pool(2))
register(aten.max_pool3d_with_indices.default)(_max_pool(3))
register(aten.max_pool2d_with_indices_backward.default)(_max_pool_backward(2))
register(aten.max_pool3d_with_indices_backward.default)(_max_pool_backward(3))


def _average_pool(rank: int) -> Callable[..., TensorValue]:
    def convert(
        ctx: ConversionContext,
        x: TensorValue,
        kernel: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None = None,
    ) -> TensorValue:
        if not x.dtype.startswith(("float", "bfloat")):
            raise ctx.refuse(ReasonKind.DTYPE, x.dtype)
        windows = _sliding(ctx, x.shape, _shape(ctx), rank, kernel, stride, padding)
        return ctx.compute(
            pool.average_pool, [x], windows, count_include_pad, divisor_override, opmath(x.dtype), x.dtype
        )

    return convert


def _average_pool_backward(rank: int) -> Callable[..., TensorValue]:
    def convert(
        ctx: ConversionContext,
        grad: TensorValue,
        x: TensorValue,
        kernel: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> TensorValue:
        windows = _sliding(ctx, x.shape, grad.shape, rank, kernel, stride, padding)
        arguments = _shape(ctx), windows, count_include_pad, divisor_override, opmath(grad.dtype), grad.dtype
        return ctx.compute(pool.average_pool_backward, [grad], *arguments)

    return convert


for _rank in (1, 2, 3):
    register(overload(f"aten.avg_pool{_rank}d.default"))(_average_pool(_rank))
    if _rank > 1:
        register(overload(f"aten.avg_pool{_rank}d_backward.default"))(_average_pool_backward(_rank))


def _adaptive(shape: Sequence[Any], counts: Sequence[Any], rank: int) -> list[pool.Window]:
    return [pool.adaptive(s, c) for s, c in zip(shape[-rank:], counts[-rank:], strict=True)]


def _adaptive_average(rank: int) -> Callable[..., TensorValue]:
    def convert(ctx: ConversionContext, x: TensorValue, output_size: Sequence[Any]) -> TensorValue:
        windows = _adaptive(x.shape, _shape(ctx), rank)
        return ctx.compute(pool.average_pool, [x], windows, False, None, opmath(x.dtype), x.dtype)

    return convert


def _adaptive_average_backward(rank: int) -> Callable[..., TensorValue]:
    def convert(ctx: ConversionContext, grad: TensorValue, x: TensorValue) -> TensorValue:
        windows = _adaptive(x.shape, grad.shape, rank)
        arguments = _shape(ctx), windows, False, None, opmath(grad.dtype), grad.dtype
        return ctx.compute(pool.average_pool_backward, [grad], *arguments)

    return convert


register(aten.adaptive_avg_pool1d.default)(_adaptive_average(1))
register(aten._adaptive_avg_pool2d.default)(_adaptive_average(2))
register(aten._adaptive_avg_pool3d.default)(_adaptive_average(3))
register(aten._adaptive_avg_pool2d_backward.default)(_adaptive_average_backward(2))
register(aten._adaptive_avg_pool3d_backward.default)(_adaptive_average_backward(3))


def _adaptive_max(rank: int) -> Callable[..., tuple[TensorValue, ...]]:
    def convert(ctx: ConversionContext, x: TensorValue, output_size: Sequence[Any]) -> tuple[TensorValue, ...]:
        windows = _adaptive(x.shape, _shape(ctx, 0), rank)
        return _largest(ctx, x, windows)

    return convert


def _adaptive_max_backward(rank: int) -> Callable[..., TensorValue]:
    def convert(ctx: ConversionContext, grad: TensorValue, x: TensorValue, indices: TensorValue) -> TensorValue:
        windows = _adaptive(x.shape, grad.shape, rank)
        arguments = _shape(ctx), windows, opmath(grad.dtype), grad.dtype
        return ctx.compute(pool.max_pool_backward, [grad, indices], *arguments)

    return convert


for _rank in (2, 3):
    register(overload(f"aten.adaptive_max_pool{_rank}d.default"))(_adaptive_max(_rank))
    register(overload(f"aten.adaptive_max_pool{_rank}d_backward.default"))(_adaptive_max_backward(_rank))


def _fractional(rank: int) -> Callable[..., tuple[TensorValue, ...]]:
    # The samples of a plane are for the last dim first over two dims, for the first dim first over three.
    coordinates = [1, 0] if rank == 2 else [0, 1, 2]

    def convert(
        ctx: ConversionContext, x: TensorValue, kernel: Sequence[int], output_size: Sequence[int], samples: TensorValue
    ) -> tuple[TensorValue, ...]:
        if is_empty(x.shape):
            raise ctx.refuse(ReasonKind.ARGUMENTS, "no elements")
        kernels, counts = each_dim(ctx, kernel, rank), each_dim(ctx, output_size, rank)
        given = zip(coordinates, x.shape[-rank:], counts, kernels, strict=True)
        starts = [ctx.compute(pool.fractional_starts, [samples], *arguments, opmath(x.dtype)) for arguments in given]

        def largest(wide: TensorValue) -> tuple[TensorValue, ...]:
            return ctx.compute_many(lambda t, *at: pool.fractional_max_pool(t, at, kernels), [wide, *starts])

        return _widened(ctx, x, largest)

    return convert


def _fractional_backward(rank: int) -> Callable[..., TensorValue]:
    def convert(
        ctx: ConversionContext,
        grad: TensorValue,
        x: TensorValue,
        kernel: Sequence[int],
        output_size: Sequence[int],
        indices: TensorValue,
    ) -> TensorValue:
        """Every window adds its gradient where its largest element stood: the windows may overlap as they like."""
        dtype = opmath(grad.dtype)
        size: Any = 1
        for d in x.shape[-rank:]:
            size = size * d

        def compute(g: te.Tensor, i: te.Tensor) -> te.Tensor:
            def where(loads: Sequence[Any], k: Sequence[Any]) -> list[Any]:
                return [*k[:-rank], *layout.unflatten(loads[1](*k), x.shape[-rank:])]

            def value(loads: Sequence[Any], k: Sequence[Any]) -> Any:
                return pw.cast(loads[0](*k), dtype)

            return ix.serial_update(ix.zeros(x.shape, dtype), [g, i], g.shape, where, value, add)

        result = ctx.compute(compute, [grad, checked_index(ctx, indices, size)])
        return result if dtype == grad.dtype else ctx.compute(rd.cast_all, [result], grad.dtype)

    return convert


for _rank in (2, 3):
    register(overload(f"aten.fractional_max_pool{_rank}d.default"))(_fractional(_rank))
    register(overload(f"aten.fractional_max_pool{_rank}d_backward.default"))(_fractional_backward(_rank))
