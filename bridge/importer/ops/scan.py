"""Cumulative ops along a dim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from ..compute import pointwise as pw
from ..compute import reduce as rd
from ..compute.index import loops
from ..compute.layout import const
from ..registry import register
from ..translate import Translator
from ..types import accumulator
from ..values import TensorValue
from .pointwise import out_dtype
from .view import wrap_dim

aten = torch.ops.aten


def scan(x: te.Tensor, dim: int, combine: Callable[[Any, Any], Any], dtype: str) -> te.Tensor:
    """out[i] = combine(out[i-1], x[i]) along `dim`, in `dtype`."""

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        source, target = ins[0], outs[0]
        others = [s for d, s in enumerate(source.shape) if d != dim]
        with IRBuilder() as builder:
            index: list[Any] = []
            with loops(others, index), T.serial(0, source.shape[dim]) as k:
                at = [*index[:dim], k, *index[dim:]]
                value = pw.cast(tirx.BufferLoad(source, at), dtype)
                with T.If(tirx.EQ(k, const(0))):
                    with T.Then():
                        T.buffer_store(target, value, at)
                    with T.Else():
                        before = [*index[:dim], k - 1, *index[dim:]]
                        T.buffer_store(target, combine(tirx.BufferLoad(target, before), value), at)
        return builder.get()

    return te.extern([x.shape], [x], body, name="scan", dtype=dtype)


def _cumulative(ctx: Translator, x: TensorValue, dim: int, combine: Callable[[Any, Any], Any]) -> TensorValue:
    dtype = out_dtype(ctx)
    wide = accumulator(dtype)
    if x.ndim == 0:
        return ctx.compute(rd.cast_all, [x], dtype)
    # Elements are cast to the dtype of the result first, as ATen does.
    source = ctx.compute(rd.cast_all, [x], dtype) if x.dtype != dtype else x
    result = ctx.compute(lambda t: scan(t, wrap_dim(dim, x.ndim), combine, wide), [source])
    return result if wide == dtype else ctx.compute(rd.cast_all, [result], dtype)


@register(aten.cumsum.default)
def convert_cumsum(ctx: Translator, x: TensorValue, dim: int, dtype: torch.dtype | None) -> TensorValue:
    return _cumulative(ctx, x, dim, lambda a, b: a + b)


@register(aten.cumprod.default)
def convert_cumprod(ctx: Translator, x: TensorValue, dim: int, dtype: torch.dtype | None) -> TensorValue:
    return _cumulative(ctx, x, dim, lambda a, b: a * b)
