# SPDX-License-Identifier: Apache-2.0
"""Sorting along a dim: a stable merge sort of indices, and order statistics read off it.

NaN counts as larger than any number, as in ATen. Serial: rows one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from . import pointwise as pw
from .index import loops
from .layout import const
from .reduce import axes_of, source_index

Expr = Any

#: Merge passes: runs double each time, and no row has 2**40 elements.
_PASSES = 40


def before(a: Expr, b: Expr, descending: bool) -> Expr:
    """Whether `a` must stand before `b`: strictly, so that equal elements keep their order."""
    if descending:
        first = a > b
        return tirx.any(first, tirx.all(pw.isnan(a), tirx.Not(pw.isnan(b)))) if pw.is_float(a) else first
    first = a < b
    return tirx.any(first, tirx.all(pw.isnan(b), tirx.Not(pw.isnan(a)))) if pw.is_float(a) else first


def argsort(x: te.Tensor, dim: int, descending: bool) -> te.Tensor:
    """int64 indices that sort `x` along `dim`, stable. `x` is not bool and has no dtype that TVM emulates."""

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        source, order, scratch, cursor = ins[0], *outs
        others = [s for d, s in enumerate(source.shape) if d != dim]
        size = source.shape[dim]
        zero = const(0)
        with IRBuilder() as builder:
            row: list[Any] = []

            def at(k: Expr) -> list[Any]:
                return [*row[:dim], k, *row[dim:]]

            def value(k: Expr) -> Expr:
                return tirx.BufferLoad(source, at(tirx.BufferLoad(order, at(k))))

            with loops(others, row):
                with T.serial(0, size) as k:
                    T.buffer_store(order, k, at(k))
                with T.serial(0, const(_PASSES)) as step:
                    width = tirx.shift_left(const(1), step)
                    with T.If(width < size), T.Then():
                        pairs = tirx.floordiv(size + 2 * width - 1, 2 * width)
                        with T.serial(0, pairs) as pair:
                            low = pair * 2 * width
                            middle, high = tirx.min(low + width, size), tirx.min(low + 2 * width, size)
                            T.buffer_store(cursor, low, [zero])
                            T.buffer_store(cursor, middle, [const(1)])
                            with T.serial(0, high - low) as k:
                                left, right = (tirx.BufferLoad(cursor, [const(c)]) for c in (0, 1))
                                # The condition is lazy: past the end of a run nothing is read.
                                take_right = tirx.if_then_else(
                                    left >= middle,
                                    tirx.const(True, "bool"),
                                    tirx.if_then_else(
                                        right >= high,
                                        tirx.const(False, "bool"),
                                        before(
                                            value(tirx.min(right, size - 1)),
                                            value(tirx.min(left, size - 1)),
                                            descending,
                                        ),
                                    ),
                                )
                                with T.If(take_right):
                                    with T.Then():
                                        T.buffer_store(scratch, tirx.BufferLoad(order, at(right)), at(low + k))
                                        T.buffer_store(cursor, right + 1, [const(1)])
                                    with T.Else():
                                        T.buffer_store(scratch, tirx.BufferLoad(order, at(left)), at(low + k))
                                        T.buffer_store(cursor, left + 1, [zero])
                        with T.serial(0, size) as k:
                            T.buffer_store(order, tirx.BufferLoad(scratch, at(k)), at(k))
        return builder.get()

    result = te.extern([x.shape, x.shape, (const(2),)], [x], body, name="argsort", dtype=["int64"] * 3)
    return result[0]


def take_along(x: te.Tensor, order: te.Tensor, dim: int, name: str = "sorted") -> te.Tensor:
    """`x` at the positions `order` along `dim`."""

    def element(*i: Expr) -> Expr:
        return x(*i[:dim], order(*i), *i[dim + 1 :])

    return te.compute(order.shape, element, name=name)


def first_along(order: te.Tensor, dim: int, count: Any) -> te.Tensor:
    """The first `count` entries along `dim`."""
    shape = [count if d == dim else s for d, s in enumerate(order.shape)]
    return te.compute(tuple(shape), lambda *i: order(*i), name="first")


def pick(x: te.Tensor, order: te.Tensor, dim: int, position: te.Tensor | Expr, keepdim: bool) -> list[te.Tensor]:
    """[value, index] at rank `position` along `dim`: a number, or a tensor with `dim` kept as size one."""
    shape = [const(1) if d == dim else s for d, s in enumerate(x.shape) if keepdim or d != dim]

    def index(*i: Expr) -> Expr:
        i = i if keepdim else (*i[:dim], const(0), *i[dim:])
        rank = position(*i) if isinstance(position, te.Tensor) else position
        return order(*i[:dim], rank, *i[dim + 1 :])

    def value(*i: Expr) -> Expr:
        wide = i if keepdim else (*i[:dim], const(0), *i[dim:])
        return x(*wide[:dim], index(*i), *wide[dim + 1 :])

    return [te.compute(tuple(shape), value, name="value"), te.compute(tuple(shape), index, name="index")]


def nan_count(x: te.Tensor, dim: int) -> te.Tensor:
    """Number of NaN along `dim`, kept as size one."""
    axes = axes_of(x, [dim])
    shape = [const(1) if d == dim else s for d, s in enumerate(x.shape)]

    def element(*i: Expr) -> Any:
        found = pw.isnan(x(*source_index(i, axes, len(x.shape), [dim], True)))
        return te.sum(tirx.Select(found, const(1), const(0)), axis=axes)

    return te.compute(tuple(shape), element, name="nan_count")


def median_rank(x: te.Tensor, nans: te.Tensor, dim: int, ignore_nan: bool) -> te.Tensor:
    """The rank of the (lower) median along `dim`. A NaN is the median, the first one, unless ignored."""
    size = x.shape[dim]

    def rank(*i: Expr) -> Expr:
        count = nans(*i)
        if ignore_nan:
            return tirx.floordiv(tirx.max(size - count - 1, const(0)), const(2))
        return tirx.Select(count > const(0), size - count, tirx.floordiv(const(0) + size - 1, const(2)))

    return te.compute(nans.shape, rank, name="median_rank")


def occurrences(x: te.Tensor, dim: int) -> te.Tensor:
    """How often each element occurs along `dim`; a NaN once."""
    axis = te.reduce_axis((const(0), x.shape[dim]), name="k")

    def element(*i: Expr) -> Any:
        same = tirx.any(tirx.EQ(axis.var, i[dim]), tirx.EQ(x(*i[:dim], axis, *i[dim + 1 :]), x(*i)))
        return te.sum(tirx.Select(same, const(1), const(0)), axis=axis)

    return te.compute(x.shape, element, name="occurrences")


def mode(counts: te.Tensor, dim: int) -> te.Tensor:
    """Rank in sorted order of the mode along `dim`, kept as size one: the last of the most frequent, smallest value."""
    axis = te.reduce_axis((const(0), counts.shape[dim]), name="k")
    shape = [const(1) if d == dim else s for d, s in enumerate(counts.shape)]

    def combine(a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
        # (rank of the first of its run, count)
        keep = tirx.any(a[1] > b[1], tirx.all(tirx.EQ(a[1], b[1]), a[0] < b[0]))
        return tirx.Select(keep, a[0], b[0]), tirx.Select(keep, a[1], b[1])

    reducer = te.comm_reducer(combine, lambda *_: (tirx.max_value("int64"), const(0)), name="mode")

    def element(*i: Expr) -> Any:
        return reducer((axis.var, counts(*i[:dim], axis, *i[dim + 1 :])), axis=axis)

    first, count = te.compute(tuple(shape), element, name="mode")
    return te.compute(tuple(shape), lambda *i: first(*i) + count(*i) - 1, name="mode_rank")
