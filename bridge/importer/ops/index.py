# SPDX-License-Identifier: Apache-2.0
"""Indexing: embedding, gather, scatter, index_select, index, index_put, and their backward ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import te, tirx

from ...kinds import ReasonKind
from ..compute import checks, distance, embedding_bag, layout
from ..compute import index as ix
from ..compute import pointwise as pw
from ..compute import reduce as rd
from ..context import ConversionContext
from ..registry import Call, register, register_library
from ..types import is_empty, opmath
from ..values import SymbolicNumber, TensorValue
from .view import wrap_dim

aten = torch.ops.aten

#: The modes of embedding bags that are no maximum.
_SUM, _MEAN = 0, 1

Update = Callable[[Any, Any], Any]


def add(old: Any, new: Any) -> Any:
    return tirx.any(old, new) if pw.dtype_of(old) == "bool" else old + new


def last(old: Any, new: Any) -> Any:
    return new


def checked_index(ctx: ConversionContext, index: TensorValue, size: Any, wraps: bool = False) -> TensorValue:
    """int64 indices into a dim of `size` elements: IndexError at run time where one is out of range.

    `wraps`: negative ones count from the end, as in index, index_put and put, and in no other op.
    """
    return ctx.compute(checks.index, [index], size, wraps)


def _is_bool_mask(t: TensorValue) -> bool:
    return t.dtype in ("bool", "uint8")


@register(aten.embedding.default)
def convert_embedding(
    ctx: ConversionContext,
    weight: TensorValue,
    indices: TensorValue,
    padding_idx: Any,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> TensorValue:
    return ctx.compute(ix.take_rows, [weight, checked_index(ctx, indices, weight.shape[0])])


@register(aten.embedding_dense_backward.default)
def convert_embedding_backward(
    ctx: ConversionContext,
    grad: TensorValue,
    indices: TensorValue,
    num_weights: Any,
    padding_idx: Any,
    scale_grad_by_freq: bool,
) -> TensorValue:
    padding = ctx.dim(padding_idx)
    rows = ctx.dim(num_weights)
    rank = indices.ndim
    dtype = opmath(grad.dtype)
    checked = checked_index(ctx, indices, rows)

    def compute(g: te.Tensor, i: te.Tensor) -> te.Tensor:
        base = ix.zeros([rows, g.shape[-1]], dtype)
        uses = ix.serial_update(
            ix.zeros([rows], "int64"), [i], i.shape, lambda loads, k: [loads[0](*k)], lambda *_: layout.const(1), add
        )

        def value(loads: Sequence[Any], k: Sequence[Any]) -> Any:
            v = pw.cast(loads[0](*k), dtype)
            if scale_grad_by_freq:
                v = v / pw.cast(loads[2](loads[1](*k[:rank])), dtype)
            if isinstance(padding, int) and padding < 0:
                return v
            return tirx.Select(tirx.EQ(loads[1](*k[:rank]), tirx.const(padding, "int64")), pw.number(0, dtype), v)

        reads = [g, i, uses] if scale_grad_by_freq else [g, i]
        return ix.serial_update(base, reads, g.shape, lambda loads, k: [loads[1](*k[:rank]), k[-1]], value, add)

    summed = ctx.compute(compute, [grad, checked])
    return summed if dtype == grad.dtype else ctx.compute(rd.cast_all, [summed], grad.dtype)


def _is_sum_of_rows(call: Call) -> bool:
    """Whether a bag's gradient is one of sums or means; the rest is ATen's: maxima, frequencies, sparse gradients,
    tables without rows."""
    grad, indices, offsets, _, _, _, _, scale_grad_by_freq, mode, sparse, _, padding_idx = call.args
    empty = any(0 in t.shape for t in (grad, indices, offsets))
    plain = grad.dim() == 2 and grad.dtype in (torch.float32, torch.float64) and isinstance(padding_idx, int)
    return mode in (_SUM, _MEAN) and not sparse and not scale_grad_by_freq and not empty and plain


register_library(aten._embedding_bag_backward.default, priority=-1)


@register(aten._embedding_bag_backward.default, when=_is_sum_of_rows)
def convert_embedding_bag_backward(
    ctx: ConversionContext,
    grad: TensorValue,
    indices: TensorValue,
    offsets: TensorValue,
    offset_to_bag: TensorValue,
    sizes: TensorValue,
    largest: TensorValue,
    num_weights: Any,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    weights: TensorValue | None,
    padding_idx: int,
) -> Any:
    rows = ctx.dim(num_weights)
    given = [grad, checked_index(ctx, indices, rows), offsets]
    divisors = [sizes] if mode == _MEAN else []
    factors = [] if weights is None else [weights]

    def compute(g: te.Tensor, i: te.Tensor, o: te.Tensor, *rest: te.Tensor) -> te.Tensor:
        return embedding_bag.gradient(
            g, i, o, rows, padding_idx, rest[0] if divisors else None, rest[-1] if factors else None
        )

    return ctx.compute(compute, [*given, *divisors, *factors])


@register(aten.embedding_renorm.default)
def convert_embedding_renorm(
    ctx: ConversionContext, weight: TensorValue, indices: TensorValue, max_norm: float, norm_type: float
) -> TensorValue:
    """The rows that `indices` name, scaled down to `max_norm` where their p-norm is larger."""
    if weight.ndim != 2 or any(isinstance(v, SymbolicNumber) for v in (max_norm, norm_type)):
        raise ctx.refuse(ReasonKind.ARGUMENTS, "a weight that is no matrix, or symbolic norms")
    if is_empty(indices.shape):
        return ctx.compute(layout.identity, [weight])
    dtype = opmath(weight.dtype)
    checked = checked_index(ctx, indices, weight.shape[0])

    def compute(w: te.Tensor, i: te.Tensor) -> te.Tensor:
        used = ix.serial_update(
            ix.zeros(w.shape[:1], "int8"), [i], i.shape, lambda loads, k: [loads[0](*k)], lambda *_: one, last
        )
        norms = distance.p_norm(
            w.shape[1:], w.shape[:1], lambda r, k: pw.cast(w(r[0], k[0]), "float64"), float(norm_type), "float64", dtype
        )

        def element(r: Any, c: Any) -> Any:
            norm = pw.cast(norms(r), "float64")
            scale = pw.cast(pw.number(max_norm, "float64") / (norm + pw.number(1e-7, "float64")), dtype)
            large = tirx.all(tirx.EQ(used(r), one), norm > pw.number(max_norm, "float64"))
            value = pw.cast(w(r, c), dtype)
            return pw.cast(tirx.Select(large, value * scale, value), weight.dtype)

        return te.compute(w.shape, element, name="embedding_renorm")

    one = tirx.const(1, "int8")
    return ctx.compute(compute, [weight, checked])


@register(aten.index_select.default)
def convert_index_select(ctx: ConversionContext, x: TensorValue, dim: int, index: TensorValue) -> TensorValue:
    dim = wrap_dim(dim, x.ndim)
    size = x.shape[dim] if x.ndim else 1
    return ctx.compute(lambda t, i: ix.index_select(t, dim, i), [x, checked_index(ctx, index, size)])


@register(aten.gather.default)
def convert_gather(
    ctx: ConversionContext, x: TensorValue, dim: int, index: TensorValue, sparse_grad: bool
) -> TensorValue:
    dim = wrap_dim(dim, x.ndim)
    size = x.shape[dim] if x.ndim else 1
    return ctx.compute(lambda t, i: ix.gather(t, dim, i), [x, checked_index(ctx, index, size)])


def _scatter(
    ctx: ConversionContext,
    x: TensorValue,
    dim: int,
    index: TensorValue,
    source: Any,
    update: Update,
    compute_dtype: str = "",
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
def convert_scatter(ctx: ConversionContext, x: TensorValue, dim: int, index: TensorValue, source: Any) -> TensorValue:
    return _scatter(ctx, x, dim, index, source, last)


@register(aten.scatter_add.default)
def convert_scatter_add(
    ctx: ConversionContext, x: TensorValue, dim: int, index: TensorValue, source: TensorValue
) -> TensorValue:
    return _scatter(ctx, x, dim, index, source, add, opmath(x.dtype))


def broadcast_shape(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    rank = max(len(s) for s in shapes)
    result: list[Any] = [1] * rank
    for shape in shapes:
        for d, size in enumerate(shape):
            at = rank - len(shape) + d
            if layout.is_one(result[at]) or (layout.may_be_one(result[at]) and not layout.is_one(size)):
                result[at] = size
    return result


def _index_tensors(
    ctx: ConversionContext, x: TensorValue, indices: Sequence[TensorValue | None]
) -> list[TensorValue | None]:
    given = [t for t in indices if t is not None]
    if not given or any(_is_bool_mask(t) for t in given):
        raise ctx.refuse(ReasonKind.DATA_DEPENDENT, "a bool mask as an index")
    return [None if t is None else checked_index(ctx, t, x.shape[d], wraps=True) for d, t in enumerate(indices)]


@register(aten.index.Tensor)
def convert_index(ctx: ConversionContext, x: TensorValue, indices: Sequence[TensorValue | None]) -> TensorValue:
    checked = _index_tensors(ctx, x, indices)
    given = [t for t in checked if t is not None]
    broadcast = tuple(broadcast_shape([t.shape for t in given]))
    shape = ctx.dims(ctx.fake.shape)
    is_given = tuple(t is not None for t in checked)

    def compute(t: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        rest = iter(tensors)
        return ix.advanced_index(t, [next(rest) if there else None for there in is_given], shape, broadcast)

    return ctx.compute(compute, [x, *given])


@register(aten.index_put.default, aten._unsafe_index_put.default)
def convert_index_put(
    ctx: ConversionContext, x: TensorValue, indices: Sequence[TensorValue | None], values: TensorValue, accumulate: bool
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

        update = add if accumulate else last
        return ix.serial_update(rd.cast_all(t, dtype), [v, *tensors], extent, where, value, update, name="index_put")

    result = ctx.compute(compute, [x, values, *given])
    return result if dtype == x.dtype else ctx.compute(rd.cast_all, [result], x.dtype)


def _masked_put(
    ctx: ConversionContext, x: TensorValue, mask: TensorValue, first: int, values: TensorValue, accumulate: bool
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
