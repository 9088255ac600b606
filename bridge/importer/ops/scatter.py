# SPDX-License-Identifier: Apache-2.0
"""Scatters that reduce, flat and masked writes, and the gradients of replicating pads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import te, tirx

from ... import torch_api
from ...kinds import ReasonKind
from ..compute import checks, layout
from ..compute import index as ix
from ..compute import pointwise as pw
from ..compute import reduce as rd
from ..compute import scan as sc
from ..context import ConversionContext
from ..registry import overload, register
from ..types import dense_order, is_float, opmath
from ..values import TensorValue
from .index import Update, add, checked_index
from .view import wrap_dim

aten = torch.ops.aten

#: name -> (identity for a dtype, combination). `mean` is a sum divided afterwards.
_REDUCTIONS: dict[str, tuple[Callable[[str], Any], Update]] = {
    "sum": (lambda d: pw.number(0, d), add),
    "mean": (lambda d: pw.number(0, d), add),
    "prod": (lambda d: pw.number(1, d), lambda a, b: tirx.all(a, b) if pw.dtype_of(a) == "bool" else a * b),
    "amax": (rd.lowest, pw.maximum),
    "amin": (rd.highest, pw.minimum),
}


def _reduce_into(
    ctx: ConversionContext,
    x: TensorValue,
    dim: int,
    index: TensorValue,
    source: TensorValue,
    name: str,
    include_self: bool,
) -> TensorValue:
    """Combines `source` into `x` at `index` along `dim`; an `index` of one dim stands for all elements of a slice."""
    dim = wrap_dim(dim, x.ndim)
    if any(isinstance(d, int) and d == 0 for d in source.shape) or any(
        isinstance(d, int) and d == 0 for d in index.shape
    ):
        return ctx.compute(layout.identity, [x])
    name = {"add": "sum", "multiply": "prod"}.get(name, name)
    if name not in _REDUCTIONS or (name == "mean" and x.dtype == "bool"):
        raise ctx.refuse(ReasonKind.ARGUMENTS, f"reduction {name!r}")
    identity, combine = _REDUCTIONS[name]
    dtype = opmath(x.dtype)
    rows = index.ndim == 1 and x.ndim > 1
    extent = [index.shape[0] if d == dim else s for d, s in enumerate(source.shape)] if rows else index.shape
    checked = checked_index(ctx, index, x.shape[dim] if x.ndim else 1)

    def where(loads: Sequence[Any], k: Sequence[Any]) -> list[Any]:
        if not x.ndim:
            return []
        at = loads[0](k[dim]) if rows else loads[0](*k)
        return [at if d == dim else k[d] for d in range(x.ndim)]

    def write(base: te.Tensor, i: te.Tensor, source: Sequence[te.Tensor], value: Any, update: Update) -> te.Tensor:
        return ix.serial_update(base, [i, *source], extent, where, value, update)

    def compute(t: te.Tensor, i: te.Tensor, s: te.Tensor) -> te.Tensor:
        base = rd.cast_all(t, dtype)
        if not include_self:
            base = write(base, i, [], lambda *_: identity(dtype), lambda old, new: new)

        def value(loads: Sequence[Any], k: Sequence[Any]) -> Any:
            return pw.cast(loads[1](*(k if s.shape else [])), dtype)

        return write(base, i, [s], value, combine)

    def count(i: te.Tensor) -> te.Tensor:
        base = te.compute(x.shape, lambda *_: layout.const(1 if include_self else 0), name="counts")
        return write(base, i, [], lambda *_: layout.const(1), lambda old, new: old + new)

    def divide(total: te.Tensor, counts: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            n = pw.cast(tirx.max(counts(*i), layout.const(1)), dtype)
            return pw.cast(total(*i) / n if is_float(dtype) else pw.floor_div_int(total(*i), n), x.dtype)

        return te.compute(x.shape, element, name="mean")

    result = ctx.compute(compute, [x, checked, source])
    if name == "mean":
        return ctx.compute(divide, [result, ctx.compute(count, [checked])])
    return result if dtype == x.dtype else ctx.compute(rd.cast_all, [result], x.dtype)


@register(aten.scatter_reduce.two)
def convert_scatter_reduce(
    ctx: ConversionContext,
    x: TensorValue,
    dim: int,
    index: TensorValue,
    source: TensorValue,
    reduce: str,
    include_self: bool,
) -> TensorValue:
    if index.ndim == 1 and x.ndim > 1:
        raise ctx.refuse(ReasonKind.ARGUMENTS, "an index of fewer dims")
    return _reduce_into(ctx, x, dim, index, source, reduce, include_self)


@register(aten.scatter.reduce, aten.scatter.value_reduce)
def convert_scatter_with_reduction(
    ctx: ConversionContext, x: TensorValue, dim: int, index: TensorValue, source: Any, reduce: str
) -> TensorValue:
    if not isinstance(source, TensorValue):
        value = pw.operand(source, x.dtype)
        source = ctx.compute(lambda: te.compute(index.shape, lambda *_: value, name="value"), [])
    return _reduce_into(ctx, x, dim, index, source, reduce, True)


@register(aten.index_reduce.default)
def convert_index_reduce(
    ctx: ConversionContext,
    x: TensorValue,
    dim: int,
    index: TensorValue,
    source: TensorValue,
    reduce: str,
    include_self: bool,
) -> TensorValue:
    if index.ndim != 1 or source.ndim != x.ndim:
        raise ctx.refuse(ReasonKind.ARGUMENTS, "a 0-d index or source")
    return _reduce_into(ctx, x, dim, index, source, reduce, include_self)


def _elements(shape: Sequence[Any]) -> Any:
    size: Any = 1
    for d in shape:
        size = size * d
    return size


@register(aten.put.default)
def convert_put(
    ctx: ConversionContext, x: TensorValue, index: TensorValue, source: TensorValue, accumulate: bool
) -> TensorValue:
    """Writes (adds) `source` at row-major positions of `x`."""
    if any(isinstance(d, int) and d == 0 for d in index.shape):
        return ctx.compute(layout.identity, [x])
    dtype = opmath(x.dtype) if accumulate else x.dtype
    checked = checked_index(ctx, index, _elements(x.shape), wraps=True)

    def compute(t: te.Tensor, i: te.Tensor, s: te.Tensor) -> te.Tensor:
        def where(loads: Sequence[Any], k: Sequence[Any]) -> list[Any]:
            return layout.unflatten(loads[0](*k), t.shape)

        def value(loads: Sequence[Any], k: Sequence[Any]) -> Any:
            return pw.cast(loads[1](*layout.unflatten(layout.flat_index(k, i.shape), s.shape)), dtype)

        update = add if accumulate else lambda old, new: new
        return ix.serial_update(rd.cast_all(t, dtype), [i, s], i.shape, where, value, update, name="put")

    result = ctx.compute(compute, [x, checked, source])
    return result if dtype == x.dtype else ctx.compute(rd.cast_all, [result], x.dtype)


def _mask_ranks(ctx: ConversionContext, mask: TensorValue, shape: Sequence[Any]) -> TensorValue:
    """int64 [elements of `shape`]: how many true elements of the broadcast mask stand up to and with this one."""

    def compute(m: te.Tensor) -> te.Tensor:
        def flag(k: Any) -> Any:
            at = layout.broadcast_index(layout.unflatten(k, shape), m.shape)
            return pw.cast(pw.cast(m(*at), "bool"), "int64")

        flags = te.compute((layout.const(1) * _elements(shape),), flag, name="flags")
        return sc.scan(flags, 0, lambda a, b: a + b, "int64")

    return ctx.compute(compute, [mask])


@register(aten.masked_scatter.default)
def convert_masked_scatter(
    ctx: ConversionContext, x: TensorValue, mask: TensorValue, source: TensorValue
) -> TensorValue:
    """Where the mask is true, the next element of `source`; RuntimeError where it has too few."""
    shape = ctx.dims(ctx.fake.shape)
    available = _elements(source.shape)
    if isinstance(available, int) and available == 0:
        raise ctx.refuse(ReasonKind.ARGUMENTS, "no elements to write")
    ranks = ctx.compute(checks.at_most, [_mask_ranks(ctx, mask, shape)], available)

    def compute(t: te.Tensor, m: te.Tensor, r: te.Tensor, s: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            taken = pw.cast(m(*layout.broadcast_index(i, m.shape)), "bool")
            rank = tirx.max(r(layout.flat_index(i, shape)) - 1, layout.const(0))
            old = t(*layout.broadcast_index(i, t.shape))
            return tirx.if_then_else(taken, s(*layout.unflatten(rank, s.shape)), old)

        return te.compute(tuple(shape), element, name="masked_scatter")

    return ctx.compute(compute, [x, mask, ranks, source])


@register(aten.masked_scatter_backward.default)
def convert_masked_scatter_backward(
    ctx: ConversionContext, grad: TensorValue, mask: TensorValue, sizes: Sequence[Any]
) -> TensorValue:
    """The elements of `grad` under the mask, one after the other, then zeros."""
    shape = ctx.dims(ctx.fake.shape)
    ranks = ctx.compute(checks.at_most, [_mask_ranks(ctx, mask, grad.shape)], _elements(shape))

    def compute(g: te.Tensor, m: te.Tensor, r: te.Tensor) -> te.Tensor:
        def where(loads: Sequence[Any], k: Sequence[Any]) -> list[Any]:
            return layout.unflatten(tirx.max(loads[2](layout.flat_index(k, g.shape)) - 1, layout.const(0)), shape)

        def value(loads: Sequence[Any], k: Sequence[Any]) -> Any:
            taken = pw.cast(loads[1](*layout.broadcast_index(k, m.shape)), "bool")
            return tirx.Select(taken, loads[0](*k), pw.number(0, grad.dtype))

        # Added to zeros: an element that is not under the mask adds nothing wherever it points.
        return ix.serial_update(ix.zeros(shape, grad.dtype), [g, m, r], g.shape, where, value, add)

    return ctx.compute(compute, [grad, mask, ranks])


@register(aten.as_strided_scatter.default)
def convert_as_strided_scatter(
    ctx: ConversionContext, x: TensorValue, source: TensorValue, size: Sequence[Any], stride: Sequence[Any], offset: Any
) -> TensorValue:
    """A copy of `x` with `source` written at the strided positions of its memory; refuses one not row-major."""
    fake = ctx.node.args[0].meta["val"]  # type: ignore[union-attr]  # a tensor node
    if dense_order(fake) != tuple(range(fake.dim())) or torch_api.expr_of(fake.storage_offset()) != 0:
        raise ctx.refuse(ReasonKind.ARGUMENTS, "the tensor's memory is not row-major")
    steps, start = ctx.dims(stride), ctx.dim(0 if offset is None else offset)

    def compute(t: te.Tensor, s: te.Tensor) -> te.Tensor:
        def where(loads: Sequence[Any], k: Sequence[Any]) -> list[Any]:
            position: Any = layout.const(0) + start
            for i, step in zip(k, steps, strict=True):
                position = position + i * step
            return layout.unflatten(position, t.shape)

        return ix.serial_update(t, [s], s.shape, where, lambda loads, k: loads[0](*k), lambda old, new: new)

    return ctx.compute(compute, [x, source])


def _replication_backward(
    ctx: ConversionContext, grad: TensorValue, x: TensorValue, padding: Sequence[Any]
) -> TensorValue:
    """Every element of the padded gradient is added where it was copied from."""
    before = [layout.const(0)] * x.ndim
    amounts = ctx.dims(padding)
    for k in range(len(amounts) // 2):
        before[x.ndim - 1 - k] = layout.const(0) + amounts[2 * k]
    padded = range(x.ndim - len(amounts) // 2, x.ndim)
    dtype = opmath(grad.dtype)

    def compute(g: te.Tensor) -> te.Tensor:
        def where(_: Sequence[Any], k: Sequence[Any]) -> list[Any]:
            zero = layout.const(0)
            return [
                tirx.min(tirx.max(i - before[d], zero), zero + x.shape[d] - 1) if d in padded else i
                for d, i in enumerate(k)
            ]

        def value(loads: Sequence[Any], k: Sequence[Any]) -> Any:
            return pw.cast(loads[0](*k), dtype)

        return ix.serial_update(ix.zeros(x.shape, dtype), [g], g.shape, where, value, add)

    result = ctx.compute(compute, [grad])
    return result if dtype == grad.dtype else ctx.compute(rd.cast_all, [result], grad.dtype)


for _rank in (1, 2, 3):
    register(overload(f"aten.replication_pad{_rank}d_backward.default"))(_replication_backward)
