"""Pooling: max with indices, average, adaptive, over one to three dims, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...kinds import ReasonKind
from ..compute import pool
from ..compute import reduce as rd
from ..registry import overload, register
from ..translate import Translator
from ..types import opmath
from ..values import TensorValue

aten = torch.ops.aten


def _each(ctx: Translator, values: Sequence[Any] | int, rank: int) -> list[int]:
    """One int a spatial dim: a single one stands for all."""
    given: list[Any] = list(values) if isinstance(values, list | tuple) else [values]
    given = given * rank if len(given) == 1 else given
    if not all(isinstance(v, int) for v in given):
        raise ctx.refuse(ReasonKind.SYMBOLIC, "a symbolic window")
    return given


def _sliding(
    ctx: Translator,
    shape: Sequence[Any],
    counts: Sequence[Any],
    rank: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
) -> list[pool.Window]:
    kernels = _each(ctx, kernel, rank)
    strides = _each(ctx, stride, rank) if stride else kernels
    arguments = kernels, strides, _each(ctx, padding, rank), _each(ctx, dilation, rank)
    return [pool.sliding(s, c, *a) for s, c, *a in zip(shape[-rank:], counts[-rank:], *arguments, strict=True)]


def _shape(ctx: Translator, output: int | None = None) -> tuple[Any, ...]:
    return ctx.dims((ctx.fake if output is None else ctx.fake[output]).shape)


def _largest(ctx: Translator, x: TensorValue, windows: Sequence[pool.Window]) -> tuple[TensorValue, ...]:
    wide = opmath(x.dtype)
    if wide == x.dtype:
        return ctx.compute_many(pool.max_pool, [x], windows)
    # In kernels of their own: TVM's lowering of bfloat16 misses a cast inside a reduction with several results.
    value, where = ctx.compute_many(pool.max_pool, [ctx.compute(rd.cast_all, [x], wide)], windows)
    return ctx.compute(rd.cast_all, [value], x.dtype), where


def _max_pool(rank: int) -> Callable[..., tuple[TensorValue, ...]]:
    def convert(
        ctx: Translator, x: TensorValue, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
    ) -> tuple[TensorValue, ...]:
        windows = _sliding(ctx, x.shape, _shape(ctx, 0), rank, kernel, stride, padding, dilation)
        return _largest(ctx, x, windows)

    return convert


def _max_pool_backward(rank: int) -> Callable[..., TensorValue]:
    def convert(
        ctx: Translator,
        grad: TensorValue,
        x: TensorValue,
        kernel: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        indices: TensorValue,
    ) -> TensorValue:
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
        ctx: Translator,
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
        ctx: Translator,
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
    def convert(ctx: Translator, x: TensorValue, output_size: Sequence[Any]) -> TensorValue:
        windows = _adaptive(x.shape, _shape(ctx), rank)
        return ctx.compute(pool.average_pool, [x], windows, False, None, opmath(x.dtype), x.dtype)

    return convert


def _adaptive_average_backward(rank: int) -> Callable[..., TensorValue]:
    def convert(ctx: Translator, grad: TensorValue, x: TensorValue) -> TensorValue:
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
    def convert(ctx: Translator, x: TensorValue, output_size: Sequence[Any]) -> tuple[TensorValue, ...]:
        windows = _adaptive(x.shape, _shape(ctx, 0), rank)
        return _largest(ctx, x, windows)

    return convert


def _adaptive_max_backward(rank: int) -> Callable[..., TensorValue]:
    def convert(ctx: Translator, grad: TensorValue, x: TensorValue, indices: TensorValue) -> TensorValue:
        windows = _adaptive(x.shape, grad.shape, rank)
        arguments = _shape(ctx), windows, opmath(grad.dtype), grad.dtype
        return ctx.compute(pool.max_pool_backward, [grad, indices], *arguments)

    return convert


for _rank in (2, 3):
    register(overload(f"aten.adaptive_max_pool{_rank}d.default"))(_adaptive_max(_rank))
    register(overload(f"aten.adaptive_max_pool{_rank}d_backward.default"))(_adaptive_max_backward(_rank))
