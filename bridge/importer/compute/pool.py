# SPDX-License-Identifier: Apache-2.0
"""Pooling over any number of trailing spatial dims: max with indices, average, and the gradients of both.

A gradient is gathered, not scattered: each input element sums over the windows that hold it. So overlapping windows
add in a fixed order, every element is written by one loop iteration, and no stored index is ever used as an address.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from . import pointwise as pw
from .layout import const, flat_index
from .pointwise import cast, number
from .program import elements
from .reduce import lowest

Expr = Any


@dataclass(frozen=True)
class Window:
    """The windows of one dim. `position` and `holder` return (index, whether there is such an element)."""

    size: Any  # of the input
    count: Any  # number of windows
    reach: Any  # elements of a window, at most
    position: Callable[[Expr, Expr], tuple[Expr, Expr]]  # (window, number in it) -> input index
    holders: Any  # windows that hold one element, at most
    holder: Callable[[Expr, Expr], tuple[Expr, Expr]]  # (input index, number) -> window
    divisor: Callable[[Expr], tuple[Expr, Expr]]  # window -> its elements (with padding, without)


def sliding(size: Any, count: Any, kernel: int, stride: int, padding: int, dilation: int = 1) -> Window:
    """Windows of `kernel` elements, `dilation` apart, at every `stride` elements of an input padded on both sides."""
    reach = (kernel - 1) * dilation + 1

    fits = isinstance(size, int) and isinstance(count, int) and (count - 1) * stride + reach <= size + padding
    always = tirx.const(True, "bool")

    def position(o: Expr, k: Expr) -> tuple[Expr, Expr]:
        at = o * stride - padding + k * dilation
        return at, tirx.all(at >= const(0) if padding else always, always if fits else at < size)

    def holder(i: Expr, k: Expr) -> tuple[Expr, Expr]:
        o = tirx.floordiv(i + padding, const(stride)) - k
        return o, tirx.all(o >= const(0), o < count, i + padding - o * stride <= const((kernel - 1) * dilation))

    def divisor(o: Expr) -> tuple[Expr, Expr]:
        # The padded end is the input's size plus padding, however far a window of ceil_mode reaches (ATen's avg_pool).
        start = o * stride - padding
        end = tirx.min(start + kernel, const(0) + size + padding)
        return end - start, tirx.min(end, const(0) + size) - tirx.max(start, const(0))

    return Window(size, count, kernel, position, (kernel - 1) * dilation // stride + 1, holder, divisor)


def adaptive(size: Any, count: Any) -> Window:
    """`count` windows that cover the input: window o is [floor(o * size / count), ceil((o + 1) * size / count))."""

    def bounds(o: Expr, of: Any, parts: Any) -> tuple[Expr, Expr]:
        of, parts = const(0) + of, const(0) + parts
        return tirx.floordiv(o * of, parts), tirx.floordiv((o + 1) * of + parts - 1, parts)

    def position(o: Expr, k: Expr) -> tuple[Expr, Expr]:
        start, end = bounds(o, size, count)
        return start + k, start + k < end

    def holder(i: Expr, k: Expr) -> tuple[Expr, Expr]:
        start, end = bounds(i, count, size)
        return start + k, start + k < end

    def divisor(o: Expr) -> tuple[Expr, Expr]:
        start, end = bounds(o, size, count)
        return end - start, end - start

    return Window(size, count, _longest(size, count), position, _longest(count, size), holder, divisor)


def _longest(size: Any, count: Any) -> Any:
    """The longest of the windows of `adaptive`, or a bound of it where sizes are symbolic."""
    if isinstance(size, int) and isinstance(count, int):
        return max(((o + 1) * size + count - 1) // count - o * size // count for o in range(count)) if count else 0
    return tirx.floordiv(const(0) + size + count - 1, const(0) + count) + 1


def _axes(extents: Sequence[Any]) -> list[Any]:
    return [te.reduce_axis((const(0), const(0) + e), name=f"k{d}") for d, e in enumerate(extents)]


def max_pool(x: te.Tensor, windows: Sequence[Window]) -> list[te.Tensor]:
    """[largest, its int64 row-major position in the spatial dims] of each window of the last dims of `x`.

    The first of equal elements; the last NaN where there is one (`val > max || isnan(val)`, ATen's MaxPoolKernel.cpp).
    A window without elements gives the lowest value at position 0.
    """
    lead = len(x.shape) - len(windows)

    def place(i: Sequence[Expr], axes: Sequence[Expr]) -> list[tuple[Expr, Expr]]:
        return [w.position(o, k) for w, o, k in zip(windows, i[lead:], axes, strict=True)]

    return _largest(x, [w.count for w in windows], [w.reach for w in windows], place)


def _largest(
    x: te.Tensor,
    counts: Sequence[Any],
    reach: Sequence[Any],
    place: Callable[[Sequence[Expr], Sequence[Expr]], list[tuple[Expr, Expr]]],
) -> list[te.Tensor]:
    """`max_pool` over windows of `reach` elements a dim. `place(i, k)`: for each spatial dim (index, whether it is
    one) of element k of the window at output index i.

    A program and no te reduction of pairs: that reads each element five times behind the conditions of its place, which
    TVM's CompactBufferAllocation takes seconds to look through, and keeps the best so far in memory.
    """
    sizes = x.shape[len(x.shape) - len(counts) :]
    lead = len(x.shape) - len(sizes)
    shape = (*x.shape[:lead], *counts)
    dtype = str(x.dtype)

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        with IRBuilder() as builder, elements(shape) as (i, program):
            best, where = program.cell(lowest(dtype)), program.cell(const(-1))
            with contextlib.ExitStack() as loops:
                axes = [loops.enter_context(T.serial(0, const(0) + extent)) for extent in reach]
                found = place(i, axes)
                at = [program.let(index) for index, _ in found]
                inside = tirx.all(*(ok for _, ok in found))
                if not isinstance(inside, tirx.IntImm):
                    loops.enter_context(program.when(inside))
                value = program.let(tirx.BufferLoad(ins[0], [*i[:lead], *at]))
                larger = [value > best.get(), where.get() < const(0)]
                if pw.is_float(value):
                    larger.append(pw.isnan(value))
                with program.when(tirx.any(*larger)):
                    best.set(value)
                    where.set(flat_index(at, sizes))
            T.buffer_store(outs[0], best.get(), i)
            T.buffer_store(outs[1], tirx.max(where.get(), const(0)), i)
        return builder.get()

    return list(te.extern([shape, shape], [x], body, name="max_pool", dtype=[dtype, "int64"]))


def _rounded(x: Expr, dtype: str) -> Expr:
    """`x` rounded to the half type `dtype` and kept in float32, where it is in its normal range; other dtypes: `x`.

    By its bits, half to even: TVM drops a cast to bfloat16 and back, and folds a constant's cast to float16 unrounded.
    """
    if dtype not in ("bfloat16", "float16"):
        return x
    dropped = 16 if dtype == "bfloat16" else 13
    bits = tirx.reinterpret("uint32", x)
    odd = tirx.bitwise_and(tirx.shift_right(bits, number(dropped, "uint32")), number(1, "uint32"))
    bits = bits + number((1 << (dropped - 1)) - 1, "uint32") + odd
    return tirx.reinterpret("float32", tirx.bitwise_and(bits, number((1 << 32) - (1 << dropped), "uint32")))


def fractional_starts(
    samples: te.Tensor, coordinate: int, size: Any, count: int, kernel: int, compute: str
) -> te.Tensor:
    """int64 [N, C, count]: where the windows of a fractional pool start along a dim, from `samples` [N, C, dims].

    With a = (size - kernel) / (count - 1) and u the sample, window o starts at trunc((o + u) * a) - trunc(u * a), the
    last one at size - kernel (ATen/native/FractionalMaxPooling.h). Each step is rounded to the dtype of the samples.
    """
    dtype = str(samples.dtype)
    last = const(0) + size - kernel

    def r(v: Expr) -> Expr:
        return _rounded(cast(v, compute), dtype)

    def start(n: Expr, c: Expr, o: Expr) -> Expr:
        u = cast(samples(n, c, const(coordinate)), compute)
        alpha = r(r(last) / r(const(max(count - 1, 1))))
        at = cast(r(r(r(o) + u) * alpha), "int64") - cast(r(u * alpha), "int64")
        # A sample outside of [0, 1) must not lead outside of the input.
        at = tirx.max(tirx.min(at, last), const(0))
        return tirx.Select(tirx.EQ(o, const(count - 1)), last, at)

    return te.compute((samples.shape[0], samples.shape[1], const(count)), start, name="starts")


def fractional_max_pool(x: te.Tensor, starts: Sequence[te.Tensor], kernel: Sequence[int]) -> list[te.Tensor]:
    """`max_pool` over windows that start at `starts`, one a spatial dim; `x` is [N, C, ...] or [C, ...]."""
    lead = len(x.shape) - len(starts)

    def place(i: Sequence[Expr], axes: Sequence[Expr]) -> list[tuple[Expr, Expr]]:
        plane = [i[0], i[1]] if lead == 2 else [const(0), i[0]]
        return [(s(*plane, o) + k, tirx.const(True)) for s, o, k in zip(starts, i[lead:], axes, strict=True)]

    return _largest(x, [s.shape[2] for s in starts], kernel, place)


def _gathered(
    shape: Sequence[Any], windows: Sequence[Window], term: Callable[..., Expr], compute: str, dtype: str
) -> te.Tensor:
    """out[i] = sum of `term(i, window)` over the windows that hold i."""
    lead = len(shape) - len(windows)
    axes = _axes([w.holders for w in windows])

    def element(*i: Expr) -> Any:
        found = [w.holder(at, k) for w, at, k in zip(windows, i[lead:], axes, strict=True)]
        value = term(i, [o for o, _ in found])
        return te.sum(tirx.if_then_else(tirx.all(*(ok for _, ok in found)), value, number(0, compute)), axis=axes)

    total = te.compute(tuple(shape), element, name="gather_windows")
    return te.compute(total.shape, lambda *i: cast(total(*i), dtype), name="gradient")


def max_pool_backward(
    grad: te.Tensor, where: te.Tensor, shape: Sequence[Any], windows: Sequence[Window], compute: str, dtype: str
) -> te.Tensor:
    """The gradient of `max_pool` for an input of `shape`, from that of its first output and its second output."""
    lead = len(shape) - len(windows)

    def term(i: Sequence[Expr], o: Sequence[Expr]) -> Expr:
        hit = tirx.EQ(where(*i[:lead], *o), flat_index(i[lead:], shape[lead:]))
        return tirx.if_then_else(hit, cast(grad(*i[:lead], *o), compute), number(0, compute))

    return _gathered(shape, windows, term, compute, dtype)


def _divided(value: Expr, o: Sequence[Expr], windows: Sequence[Window], padded: bool, divisor: int | None) -> Expr:
    dtype = pw.dtype_of(value)
    count: Expr = const(1 if divisor is None else divisor)
    if divisor is None:
        for w, at in zip(windows, o, strict=True):
            count = count * w.divisor(at)[0 if padded else 1]
    # A window of ceil_mode may lie in the padding alone: it has no terms, and must not divide by zero.
    return value / cast(tirx.max(count, const(1)) if divisor is None else count, dtype)


def average_pool(
    x: te.Tensor, windows: Sequence[Window], padded: bool, divisor: int | None, compute: str, dtype: str
) -> te.Tensor:
    """Mean of each window of the last dims; `padded`: padding counts as elements; `divisor`: in place of the count."""
    lead = len(x.shape) - len(windows)
    axes = _axes([w.reach for w in windows])

    def element(*i: Expr) -> Any:
        found = [w.position(o, k) for w, o, k in zip(windows, i[lead:], axes, strict=True)]
        value = cast(x(*i[:lead], *(at for at, _ in found)), compute)
        return te.sum(tirx.if_then_else(tirx.all(*(ok for _, ok in found)), value, number(0, compute)), axis=axes)

    total = te.compute((*x.shape[:lead], *(w.count for w in windows)), element, name="window_sum")
    return te.compute(
        total.shape, lambda *i: cast(_divided(total(*i), i[lead:], windows, padded, divisor), dtype), name="average"
    )


def average_pool_backward(
    grad: te.Tensor,
    shape: Sequence[Any],
    windows: Sequence[Window],
    padded: bool,
    divisor: int | None,
    compute: str,
    dtype: str,
) -> te.Tensor:
    """The gradient of `average_pool` for an input of `shape`."""
    lead = len(shape) - len(windows)

    def term(i: Sequence[Expr], o: Sequence[Expr]) -> Expr:
        return _divided(cast(grad(*i[:lead], *o), compute), o, windows, padded, divisor)

    return _gathered(shape, windows, term, compute, dtype)
