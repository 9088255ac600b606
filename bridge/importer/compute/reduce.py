# SPDX-License-Identifier: Apache-2.0
"""Reductions with ATen's semantics over any set of dims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from . import pointwise as pw
from .layout import const, is_one, reshape
from .pointwise import Expr, cast, number

Combine = Callable[[Expr, Expr], Expr]


def normalize_dims(dims: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Sorted dims counted from the start; None or empty means all."""
    if not dims:
        return tuple(range(rank))
    return tuple(sorted({d + rank if d < 0 else d for d in dims} if rank else set()))


def axes_of(x: te.Tensor, dims: Sequence[int]) -> list[Any]:
    return [te.reduce_axis((0, x.shape[d]), name=f"k{d}") for d in dims]


def _output_shape(x: te.Tensor, dims: Sequence[int], keepdim: bool) -> list[Any]:
    return [const(1) if d in dims else s for d, s in enumerate(x.shape) if keepdim or d not in dims]


def source_index(i: Sequence[Any], axes: Sequence[Any], rank: int, dims: Sequence[int], keepdim: bool) -> list[Any]:
    remaining = iter(i)
    reduced = iter(axes)
    index: list[Any] = []
    for d in range(rank):
        if d in dims:
            index.append(next(reduced))
            if keepdim:
                next(remaining)
        else:
            index.append(next(remaining))
    return index


def reduce(
    x: te.Tensor,
    dims: Sequence[int],
    keepdim: bool,
    map_element: Callable[[Expr], Expr],
    combine: Combine,
    identity: Callable[[str], Expr],
    name: str,
) -> te.Tensor:
    """`combine` over the mapped elements along `dims`; the result has the mapped dtype."""
    rank = len(x.shape)
    if not dims:
        return te.compute(x.shape, lambda *i: map_element(x(*i)), name=name)
    reducer = te.comm_reducer(combine, identity, name=name)
    axes = axes_of(x, dims)
    return te.compute(
        _output_shape(x, dims, keepdim),
        lambda *i: reducer(map_element(x(*source_index(i, axes, rank, dims, keepdim))), axis=axes),
        name=name,
    )


def cast_all(x: te.Tensor, dtype: str) -> te.Tensor:
    if str(x.dtype) == dtype:
        return x
    return te.compute(x.shape, lambda *i: cast(x(*i), dtype), name="cast")


def sum_of_one(x: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """A sum over dims of size one: the elements themselves, but 0 for -0, as a sum that starts from 0 has it."""
    whole = reshape(x, shape)
    dtype = str(x.dtype)
    if not dtype.startswith(("float", "bfloat")):
        return whole
    return te.compute(whole.shape, lambda *i: whole(*i) + pw.operand(0, dtype), name="sum")


def sum_as(x: te.Tensor, dims: Sequence[int], keepdim: bool, accumulate: str, dtype: str) -> te.Tensor:
    """Sum along `dims`, elements first cast to the dtype of the result as in ATen, accumulated in `accumulate`."""
    total = reduce(x, dims, keepdim, lambda v: cast(v, accumulate), lambda a, b: a + b, lambda d: number(0, d), "sum")
    return cast_all(total, dtype)


def mean(x: te.Tensor, dims: Sequence[int], keepdim: bool, accumulate: str, dtype: str) -> te.Tensor:
    total = sum_as(x, dims, keepdim, accumulate, accumulate)
    count = element_count(x, dims)
    return te.compute(total.shape, lambda *i: cast(total(*i) / count.astype(accumulate), dtype), name="mean")


def element_count(x: te.Tensor, dims: Sequence[int]) -> Any:
    """Number of elements along `dims`, as an int64 expression."""
    count: Any = const(1)
    for d in dims:
        if not is_one(x.shape[d]):
            count = count * x.shape[d]
    return count


def product(x: te.Tensor, dims: Sequence[int], keepdim: bool, accumulate: str, dtype: str) -> te.Tensor:
    total = reduce(
        x, dims, keepdim, lambda v: cast(v, accumulate), lambda a, b: a * b, lambda d: number(1, d), "product"
    )
    return cast_all(total, dtype)


def lowest(dtype: str) -> Expr:
    if dtype == "bool":
        return tirx.const(False, "bool")
    return number(float("-inf"), dtype) if dtype.startswith(("float", "bfloat")) else tirx.min_value(dtype)


def highest(dtype: str) -> Expr:
    if dtype == "bool":
        return tirx.const(True, "bool")
    return number(float("inf"), dtype) if dtype.startswith(("float", "bfloat")) else tirx.max_value(dtype)


def amax(x: te.Tensor, dims: Sequence[int], keepdim: bool) -> te.Tensor:
    """NaN where any element is NaN."""
    return _extreme(x, dims, keepdim, largest=True)


def amin(x: te.Tensor, dims: Sequence[int], keepdim: bool) -> te.Tensor:
    """NaN where any element is NaN."""
    return _extreme(x, dims, keepdim, largest=False)


def _extreme(x: te.Tensor, dims: Sequence[int], keepdim: bool, *, largest: bool) -> te.Tensor:
    """Max or min of floats as integers that order alike, NaN beyond infinity.

    A maximum that tests for NaN is no reduction that a schedule can split into lanes; the integer maximum is.
    """
    dtype = str(x.dtype)
    name = "amax" if largest else "amin"
    if dtype == "bool":
        either = pw.maximum if largest else pw.minimum
        return reduce(x, dims, keepdim, lambda v: v, either, lowest if largest else highest, name)

    def combine(a: Expr, b: Expr) -> Expr:
        return tirx.max(a, b) if largest else tirx.min(a, b)

    identity = tirx.min_value if largest else tirx.max_value
    if not dtype.startswith(("float", "bfloat")):
        return reduce(x, dims, keepdim, lambda v: v, combine, identity, name)
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    bits = wide.replace("float", "int")
    sign, rest = int(bits[3:]) - 1, number((1 << (int(bits[3:]) - 1)) - 1, bits)
    beyond = tirx.max_value(bits) if largest else tirx.min_value(bits)

    def flip(key: Expr) -> Expr:
        return tirx.bitwise_xor(key, tirx.bitwise_and(tirx.shift_right(key, number(sign, bits)), rest))

    def ordered(v: Expr) -> Expr:
        v = cast(v, wide)
        return tirx.Select(pw.isnan(v), beyond, flip(tirx.reinterpret(bits, v)))

    best = reduce(x, dims, keepdim, ordered, combine, identity, name)
    nan = number(float("nan"), wide)

    def back(*i: Any) -> Expr:
        value = tirx.reinterpret(wide, flip(best(*i)))
        # The key beyond infinity is a NaN whose bits a cast to bfloat16 would round to zero.
        return cast(tirx.Select(pw.isnan(value), nan, value), dtype)

    return te.compute(best.shape, back, name=f"{name}_value")


def any_true(x: te.Tensor, dims: Sequence[int], keepdim: bool) -> te.Tensor:
    return reduce(
        x, dims, keepdim, lambda v: cast(v, "bool"), lambda a, b: tirx.any(a, b), lambda d: tirx.const(False, d), "any"
    )


def all_true(x: te.Tensor, dims: Sequence[int], keepdim: bool) -> te.Tensor:
    return reduce(
        x, dims, keepdim, lambda v: cast(v, "bool"), lambda a, b: tirx.all(a, b), lambda d: tirx.const(True, d), "all"
    )


def best_with_index(x: te.Tensor, dim: int | None, keepdim: bool, largest: bool) -> list[te.Tensor]:
    """[value, int64 index] of the largest (smallest) element along `dim`, or of the whole tensor flattened.

    The first NaN wins, else the first of equal elements (ATen's argmax and max.dim on the CPU).
    """
    rank = len(x.shape)
    dims = list(range(rank)) if dim is None else [dim]
    dtype = str(x.dtype)

    def better(a: Expr, i: Expr, b: Expr, j: Expr) -> Expr:
        """Whether (a, i) is kept against (b, j)."""
        if dtype == "bool":
            wins, equal = (a > b if largest else a < b), tirx.EQ(a, b)
        else:
            wins = a > b if largest else a < b
            equal = tirx.EQ(a, b)
        if pw.is_float(a):
            wins = tirx.any(wins, tirx.all(pw.isnan(a), tirx.Not(pw.isnan(b))))
            equal = tirx.any(equal, tirx.all(pw.isnan(a), pw.isnan(b)))
        return tirx.any(wins, tirx.all(equal, i < j))

    def combine(lhs: tuple[Expr, Expr], rhs: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
        # (index, value); the index of the identity is larger than any.
        keep = better(lhs[1], lhs[0], rhs[1], rhs[0])
        return tirx.Select(keep, lhs[0], rhs[0]), tirx.Select(keep, lhs[1], rhs[1])

    def identity(index_dtype: str, value_dtype: str) -> tuple[Expr, Expr]:
        return tirx.max_value(index_dtype), lowest(value_dtype) if largest else highest(value_dtype)

    if not dims:
        return [
            te.compute(x.shape, lambda *i: x(*i), name="value"),
            te.compute(x.shape, lambda *i: const(0), name="index"),
        ]
    source = x
    if dtype == "bool":
        source = te.compute(x.shape, lambda *i: cast(x(*i), "int8"), name="as_int")
        dtype = "int8"
    reducer = te.comm_reducer(combine, identity, name="argbest")
    axes = axes_of(source, dims)

    def element(*i: Any) -> Any:
        index = source_index(i, axes, rank, dims, keepdim)
        position: Any = const(0)
        for d in dims:
            position = position * source.shape[d] + index[d]
        return reducer((position, source(*index)), axis=axes)

    where, value = te.compute(_output_shape(source, dims, keepdim), element, name="argbest")
    return [cast_all(value, str(x.dtype)), te.compute(where.shape, lambda *i: where(*i), name="index")]


def variance(
    x: te.Tensor, dims: Sequence[int], keepdim: bool, correction: float, accumulate: str, dtype: str
) -> list[te.Tensor]:
    """[variance, mean] along `dims` in two passes, the divisor max(0, count - correction) as in ATen's WelfordOps."""
    average = mean(x, dims, True, accumulate, accumulate)
    rank = len(x.shape)

    def centered(*i: Any) -> Any:
        at = [const(0) if d in dims else i[d] for d in range(rank)]
        d = cast(x(*i), accumulate) - average(*at)
        return d * d

    squares = te.compute(x.shape, centered, name="squares")
    total = sum_as(squares, dims, keepdim, accumulate, accumulate)
    count = element_count(x, dims).astype(accumulate) - number(correction, accumulate)
    divisor = pw.maximum(count, number(0, accumulate))
    var = te.compute(total.shape, lambda *i: cast(total(*i) / divisor, dtype), name="variance")
    if keepdim:
        means = cast_all(average, dtype)
    else:
        kept = [d for d in range(rank) if d not in dims]

        def read(*i: Any) -> Any:
            at: list[Any] = [const(0)] * rank
            for position, d in enumerate(kept):
                at[d] = i[position]
            return cast(average(*at), dtype)

        means = te.compute([x.shape[d] for d in kept], read, name="mean_out")
    return [var, means]
