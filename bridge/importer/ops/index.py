"""Indexing: embedding, gather, scatter, index_select, index, index_put, and their backward ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import te, tirx

from ...kinds import ReasonKind
from ..compute import checks, layout
from ..compute import index as ix
from ..compute import pointwise as pw
from ..compute import reduce as rd
from ..registry import register
from ..translate import Translator
from ..types import opmath
from ..values import TensorValue
from .view import wrap_dim

aten = torch.ops.aten


def checked_index(ctx: Translator, index: TensorValue, size: Any) -> TensorValue:
    """int64 indices into a dim of `size` elements: negative ones wrapped, IndexError at run time where out of range."""
    return ctx.compute(checks.index, [index], size)


def _is_bool_mask(t: TensorValue) -> bool:
    return t.dtype in ("bool", "uint8")


@register(aten.embedding.default)
def convert_embedding(
    ctx: Translator, weight: TensorValue, indices: TensorValue, padding_idx: Any, scale_grad_by_freq: bool, sparse: bool
) -> TensorValue:
    return ctx.compute(ix.take_rows, [weight, checked_index(ctx, indices, weight.shape[0])])


@register(aten.embedding_dense_backward.default)
def convert_embedding_backward(
    ctx: Translator,
    grad: TensorValue,
    indices: TensorValue,
    num_weights: Any,
    padding_idx: Any,
    scale_grad_by_freq: bool,
) -> TensorValue:
    if scale_grad_by_freq:
        raise ctx.refuse(ReasonKind.ARGUMENTS, "scale_grad_by_freq")
    padding = ctx.dim(padding_idx)
    rows = ctx.dim(num_weights)
    rank = indices.ndim
    dtype = opmath(grad.dtype)
    checked = checked_index(ctx, indices, rows)

    def compute(g: te.Tensor, i: te.Tensor) -> te.Tensor:
        base = ix.zeros([rows, g.shape[-1]], dtype)

        def value(loads: Sequence[Any], k: Sequence[Any]) -> Any:
            v = pw.cast(loads[0](*k), dtype)
            if isinstance(padding, int) and padding < 0:
                return v
            return tirx.Select(tirx.EQ(loads[1](*k[:rank]), tirx.const(padding, "int64")), pw.number(0, dtype), v)

        return ix.serial_update(
            base, [g, i], g.shape, lambda loads, k: [loads[1](*k[:rank]), k[-1]], value, lambda old, new: old + new
        )

    summed = ctx.compute(compute, [grad, checked])
    return summed if dtype == grad.dtype else ctx.compute(rd.cast_all, [summed], grad.dtype)


@register(aten.index_select.default)
def convert_index_select(ctx: Translator, x: TensorValue, dim: int, index: TensorValue) -> TensorValue:
    dim = wrap_dim(dim, x.ndim)
    size = x.shape[dim] if x.ndim else 1
    return ctx.compute(lambda t, i: ix.index_select(t, dim, i), [x, checked_index(ctx, index, size)])


@register(aten.gather.default)
def convert_gather(ctx: Translator, x: TensorValue, dim: int, index: TensorValue, sparse_grad: bool) -> TensorValue:
    dim = wrap_dim(dim, x.ndim)
    size = x.shape[dim] if x.ndim else 1
    return ctx.compute(lambda t, i: ix.gather(t, dim, i), [x, checked_index(ctx, index, size)])


Update = Callable[[Any, Any], Any]


def _scatter(
    ctx: Translator, x: TensorValue, dim: int, index: TensorValue, source: Any, update: Update, compute_dtype: str = ""
) -> TensorValue:
    """out[..., index[i], ...] = update(out[...], source[i]) for every i of `index`, in order."""
    dim = wrap_dim(dim, x.ndim)
    if any(isinstance(d, int) and d == 0 for d in index.shape):
        return ctx.compute(rd.cast_all, [x], x.dtype)
    dtype = compute_dtype or x.dtype
    checked = checked_index(ctx, index, x.shape[dim] if x.ndim else 1)
    tensor = isinstance(source, TensorValue)

    def compute(t: te.Tensor, i: te.Tensor, *rest: te.Tensor) -> te.Tensor:
        def where(loads: Sequence[Any], k: Sequence[Any]) -> list[Any]:
            if not t.shape:
                return []
            at = loads[0](*k)
            return [at if d == dim else (k[d] if k else at) for d in range(len(t.shape))]

        def value(loads: Sequence[Any], k: Sequence[Any]) -> Any:
            if not tensor:
                return pw.number(source, dtype)
            return pw.cast(loads[1](*(k if rest[0].shape else [])), dtype)

        base = rd.cast_all(t, dtype)
        return ix.serial_update(base, [i, *rest], i.shape, where, value, update)

    result = ctx.compute(compute, [x, checked, *([source] if tensor else [])])
    return result if dtype == x.dtype else ctx.compute(rd.cast_all, [result], x.dtype)


@register(aten.scatter.src, aten.scatter.value)
def convert_scatter(ctx: Translator, x: TensorValue, dim: int, index: TensorValue, source: Any) -> TensorValue:
    return _scatter(ctx, x, dim, index, source, lambda old, new: new)


def add(old: Any, new: Any) -> Any:
    return tirx.any(old, new) if pw.dtype_of(old) == "bool" else old + new


@register(aten.scatter_add.default)
def convert_scatter_add(
    ctx: Translator, x: TensorValue, dim: int, index: TensorValue, source: TensorValue
) -> TensorValue:
    return _scatter(ctx, x, dim, index, source, add, opmath(x.dtype))


def broadcast_shape(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    rank = max(len(s) for s in shapes)
    result: list[Any] = [1] * rank
    for shape in shapes:
        for d, size in enumerate(shape):
            at = rank - len(shape) + d
            if isinstance(result[at], int) and result[at] == 1:
                result[at] = size
    return result


def _index_tensors(ctx: Translator, x: TensorValue, indices: Sequence[TensorValue | None]) -> list[TensorValue | None]:
    given = [t for t in indices if t is not None]
    if not given or any(_is_bool_mask(t) for t in given):
        raise ctx.refuse(ReasonKind.DATA_DEPENDENT, "a bool mask as an index")
    return [None if t is None else checked_index(ctx, t, x.shape[d]) for d, t in enumerate(indices)]


@register(aten.index.Tensor)
def convert_index(ctx: Translator, x: TensorValue, indices: Sequence[TensorValue | None]) -> TensorValue:
    checked = _index_tensors(ctx, x, indices)
    given = [t for t in checked if t is not None]
    broadcast = broadcast_shape([t.shape for t in given])
    shape = ctx.dims(ctx.fake.shape)

    def compute(t: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        rest = iter(tensors)
        return ix.advanced_index(t, [None if c is None else next(rest) for c in checked], shape, broadcast)

    return ctx.compute(compute, [x, *given])


@register(aten.index_put.default, aten._unsafe_index_put.default)
def convert_index_put(
    ctx: Translator, x: TensorValue, indices: Sequence[TensorValue | None], values: TensorValue, accumulate: bool
) -> TensorValue:
    masks = [t for t in indices if t is not None]
    if len(masks) == 1 and masks[0].dtype == "bool":
        return _masked_put(ctx, x, masks[0], list(indices).index(masks[0]), values, accumulate)
    checked = _index_tensors(ctx, x, indices)
    given = [t for t in checked if t is not None]
    broadcast = broadcast_shape([t.shape for t in given])
    positions = [d for d, t in enumerate(checked) if t is not None]
    adjacent = positions == list(range(positions[0], positions[-1] + 1))
    at = positions[0] if adjacent else 0
    kept = [d for d in range(x.ndim) if d not in positions]
    extent = [x.shape[d] for d in kept]
    extent[at:at] = broadcast
    if any(isinstance(d, int) and d == 0 for d in extent):
        return ctx.compute(rd.cast_all, [x], x.dtype)
    dtype = opmath(x.dtype) if accumulate else x.dtype

    def compute(t: te.Tensor, v: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        def where(loads: Sequence[Any], k: Sequence[Any]) -> list[Any]:
            shared = k[at : at + len(broadcast)]
            rest = iter([*k[:at], *k[at + len(broadcast) :]])
            numbers = iter(range(len(tensors)))
            target = []
            for d in range(len(t.shape)):
                if d in positions:
                    n = next(numbers)
                    target.append(loads[1 + n](*ix.broadcast_index(shared, tensors[n].shape)))
                else:
                    target.append(next(rest))
            return target

        def value(loads: Sequence[Any], k: Sequence[Any]) -> Any:
            return pw.cast(loads[0](*ix.broadcast_index(k, v.shape)), dtype)

        update = add if accumulate else lambda old, new: new
        return ix.serial_update(rd.cast_all(t, dtype), [v, *tensors], extent, where, value, update, name="index_put")

    result = ctx.compute(compute, [x, values, *given])
    return result if dtype == x.dtype else ctx.compute(rd.cast_all, [result], x.dtype)


def _masked_put(
    ctx: Translator, x: TensorValue, mask: TensorValue, first: int, values: TensorValue, accumulate: bool
) -> TensorValue:
    """`x[mask] = values` for values that are the same at every true element; others need to know how many there are.

    The mask stands for the dims of `x` from `first` on.
    """
    rest = x.ndim - first - mask.ndim
    if mask.ndim == 0 or (values.ndim > rest and not layout.is_one(values.shape[values.ndim - rest - 1])):
        raise ctx.refuse(ReasonKind.DATA_DEPENDENT, "a different value for each element under a bool mask")
    dtype = opmath(x.dtype)

    def compute(t: te.Tensor, m: te.Tensor, v: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            one = (*i[:first], layout.const(0), *i[first + mask.ndim :])
            value = pw.cast(v(*layout.broadcast_index(one, v.shape)), x.dtype)
            if accumulate:
                value = pw.cast(add(pw.cast(t(*i), dtype), pw.cast(value, dtype)), x.dtype)
            return tirx.Select(m(*i[first : first + mask.ndim]), value, t(*i))

        return te.compute(t.shape, element, name="masked_put")

    return ctx.compute(compute, [x, mask, values])
