# SPDX-License-Identifier: Apache-2.0
"""Reductions over runs of rows, and counts in bins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from . import pointwise as pw
from .index import loops
from .layout import const
from .pointwise import Expr, cast, number
from .program import Program, elements

#: name -> (start, combination). A mean is a sum divided afterwards.
_REDUCTIONS: dict[str, tuple[float, Callable[[Expr, Expr], Expr]]] = {
    "sum": (0.0, lambda a, b: a + b),
    "mean": (0.0, lambda a, b: a + b),
    "prod": (1.0, lambda a, b: a * b),
    "max": (float("-inf"), pw.maximum),
    "min": (float("inf"), pw.minimum),
}
REDUCTIONS = frozenset(_REDUCTIONS)


def bounds_of_lengths(lengths: te.Tensor, size: Any, exact: bool) -> te.Tensor:
    """int64 [..., N + 1] starts of the runs of `lengths` [..., N], and the end of the last one.

    RuntimeError for a negative length and where they add up to more than `size` rows (`exact`: or to fewer).
    """
    count = lengths.shape[-1]

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        given, bounds = ins[0], outs[0]
        with IRBuilder() as builder:
            row: list[Any] = []
            with loops(given.shape[:-1], row):
                T.buffer_store(bounds, const(0), [*row, const(0)])
                with T.serial(0, count) as k:
                    length = tirx.BufferLoad(given, [*row, k]).astype("int64")
                    with T.Assert(length >= const(0), "lengths contains negative value!", "RuntimeError"):
                        T.buffer_store(bounds, tirx.BufferLoad(bounds, [*row, k]) + length, [*row, k + 1])
                total = tirx.BufferLoad(bounds, [*row, const(0) + count])
                limit = const(0) + size
                sums = tirx.EQ(total, limit) if exact else total <= limit
                with T.Assert(sums, "the lengths do not sum to the size of the axis", "RuntimeError"):
                    T.buffer_store(bounds, total, [*row, const(0) + count])
        return builder.get()

    shape = [*lengths.shape[:-1], count + const(1)]
    return te.extern([tuple(shape)], [lengths], body, name="bounds", dtype="int64")


def bounds_of_offsets(offsets: te.Tensor, size: Any) -> te.Tensor:
    """The same of offsets [..., N + 1]: RuntimeError where they do not ascend, or leave the `size` rows."""

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        given, bounds = ins[0], outs[0]
        with IRBuilder() as builder:
            at: list[Any] = []
            with loops(given.shape, at):
                value = tirx.BufferLoad(given, at).astype("int64")
                before = tirx.BufferLoad(bounds, [*at[:-1], tirx.max(at[-1] - 1, const(0))])
                least = tirx.if_then_else(at[-1] > const(0), before, const(0))
                fits = tirx.all(value >= least, value <= const(0) + size)
                with T.Assert(fits, "the offsets do not ascend within the size of the axis", "RuntimeError"):
                    T.buffer_store(bounds, value, at)
        return builder.get()

    return te.extern([offsets.shape], [offsets], body, name="bounds", dtype="int64")


class _Run:
    """The rows of one run for one position of the other dims, in a loop of its own each time."""

    def __init__(self, p: Program, bounds: Any, at: Sequence[Any], axis: int):
        self._p, self._at, self._axis = p, at, axis
        outer = list(at[: axis + 1])
        self.start = p.let(tirx.BufferLoad(bounds, outer))
        self.end = p.let(tirx.BufferLoad(bounds, [*outer[:-1], outer[-1] + 1]))

    def each(self, body: Callable[[list[Any], Expr], None]) -> None:
        """`body(index, row)` for each row of the run."""
        row = self._p.cell(self.start)
        with self._p.loop(row.get() < self.end):
            now = self._p.let(row.get())
            body([*self._at[: self._axis], now, *self._at[self._axis + 1 :]], now)
            row.set(now + const(1))


def segment_reduce(
    x: te.Tensor, bounds: te.Tensor, shape: Sequence[Any], axis: int, name: str, initial: float | None, compute: str
) -> te.Tensor:
    """[..., N, ...] of the rows along `axis` of `x` between neighbouring `bounds` [..., N + 1].

    A run without rows gives the start value, a mean NaN unless `initial` is given. Computed in `compute`.
    """
    start, combine = _REDUCTIONS[name]

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        with IRBuilder() as builder, elements(shape) as (at, p):
            run = _Run(p, ins[1], at, axis)
            total = p.cell(number(start if initial is None else initial, compute))

            def add(index: list[Any], _: Expr) -> None:
                total.set(combine(total.get(), p.let(cast(tirx.BufferLoad(ins[0], index), compute))))

            run.each(add)
            if name == "mean":
                with p.when(run.end > run.start):
                    total.set(total.get() / cast(run.end - run.start, compute))
                if initial is None:
                    with p.when(run.end <= run.start):
                        total.set(number(float("nan"), compute))
            T.buffer_store(outs[0], cast(total.get(), str(x.dtype)), at)
        return builder.get()

    return te.extern([tuple(shape)], [x, bounds], body, name="segment_reduce", dtype=str(x.dtype))


def segment_reduce_backward(
    grad: te.Tensor,
    output: te.Tensor,
    x: te.Tensor,
    bounds: te.Tensor,
    axis: int,
    name: str,
    initial: float | None,
    compute: str,
) -> te.Tensor:
    """The gradient of `segment_reduce` for `x`; 0 for rows of no run.

    Among equal maxima (minima) a positive gradient is shared, a negative one goes to each: as ATen's CPU kernel does.
    """
    dtype = str(x.dtype)
    zero = number(0, compute)

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        target = outs[0]
        with IRBuilder() as filling, elements(target.shape) as (at, _):
            T.buffer_store(target, number(0, dtype), at)
        with IRBuilder() as builder, elements(ins[0].shape) as (at, p):
            g, best = (p.let(cast(tirx.BufferLoad(b, at), compute)) for b in ins[:2])
            run = _Run(p, ins[3], at, axis)

            def load(index: list[Any]) -> Expr:
                return p.let(cast(tirx.BufferLoad(ins[2], index), compute))

            if name in ("max", "min"):
                _to_the_best(p, run, load, target, g, best, dtype)
            elif name == "prod":
                start = number(1 if initial is None else initial, compute)

                def factor(index: list[Any], row: Expr) -> None:
                    value = load(index)
                    singular = tirx.any(tirx.EQ(value, zero), pw.isnan(value))
                    others = p.cell(start)

                    def multiply(other: list[Any], k: Expr) -> None:
                        with p.when(tirx.NE(k, row)):
                            others.set(others.get() * load(other))

                    with p.when(singular):
                        run.each(multiply)
                    slope = tirx.Select(singular, g * others.get(), g * best / value)
                    T.buffer_store(target, cast(slope, dtype), index)

                run.each(factor)
            else:
                share = g / cast(run.end - run.start, compute) if name == "mean" else g
                run.each(lambda index, _: T.buffer_store(target, cast(share, dtype), index))
        return tirx.stmt_seq(filling.get(), builder.get())

    return te.extern([x.shape], [grad, output, x, bounds], body, name="segment_reduce_backward", dtype=dtype)


def _to_the_best(
    p: Program, run: _Run, load: Callable[[list[Any]], Expr], target: Any, g: Expr, best: Expr, dtype: str
) -> None:
    count = p.cell(number(0, pw.dtype_of(g)))
    one, zero = number(1, pw.dtype_of(g)), number(0, pw.dtype_of(g))

    def is_best(value: Expr) -> Expr:
        return tirx.any(tirx.EQ(value, best), pw.isnan(value))

    def add(index: list[Any], _: Expr) -> None:
        with p.when(is_best(load(index))):
            count.set(count.get() + one)

    run.each(add)
    share = p.let(tirx.Select(g > zero, g / tirx.max(count.get(), one), g))
    run.each(
        lambda index, _: T.buffer_store(target, cast(tirx.Select(is_best(load(index)), share, zero), dtype), index)
    )


def extent_of_values(x: te.Tensor) -> te.Tensor:
    """[2]: the smallest and the largest element, one apart on either side where they are equal.

    RuntimeError where one is not finite.
    """
    dtype = str(x.dtype)
    compute = "float32" if dtype in ("float16", "bfloat16") else dtype

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        low, high = [const(0)], [const(1)]
        infinity = number(float("inf"), compute)
        with IRBuilder() as start, T.serial(0, const(2)) as k:
            T.buffer_store(outs[0], tirx.Select(tirx.EQ(k, const(0)), infinity, pw.negative(infinity)), [k])
        at: list[Any] = []
        with IRBuilder() as search, loops(x.shape, at):
            value = Program().let(cast(tirx.BufferLoad(ins[0], at), compute))
            with T.Assert(pw.absolute(value) < infinity, "torch.histc: the range is not finite", "RuntimeError"):
                T.buffer_store(outs[0], tirx.min(tirx.BufferLoad(outs[0], low), value), low)
                T.buffer_store(outs[0], tirx.max(tirx.BufferLoad(outs[0], high), value), high)
        equal = tirx.EQ(tirx.BufferLoad(outs[0], low), tirx.BufferLoad(outs[0], high))
        with IRBuilder() as widen, T.If(equal), T.Then():
            T.buffer_store(outs[0], tirx.BufferLoad(outs[0], low) - number(1, compute), low)
            T.buffer_store(outs[0], tirx.BufferLoad(outs[0], high) + number(1, compute), high)
        return tirx.stmt_seq(start.get(), search.get(), widen.get())

    return te.extern([(const(2),)], [x], body, name="extent", dtype=compute)


def counts(x: te.Tensor, extent: te.Tensor, bins: Any) -> te.Tensor:
    """How many elements lie in each of `bins` equal parts of [extent[0], extent[1]]; the last part has both its ends.

    Others, and NaN, are not counted. int64.
    """
    compute = str(extent.dtype)

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        with IRBuilder() as filling, T.serial(0, const(0) + bins) as k:
            T.buffer_store(outs[0], const(0), [k])
        at: list[Any] = []
        with IRBuilder() as builder, loops(x.shape, at):
            p = Program()
            value = p.let(cast(tirx.BufferLoad(ins[0], at), compute))
            low, high = (tirx.BufferLoad(ins[1], [const(k)]) for k in (0, 1))
            with p.when(tirx.all(value >= low, value <= high)):
                place = (value - low) * cast(const(0) + bins, compute) / (high - low)
                bin_number = p.let(tirx.min(place.astype("int64"), const(-1) + bins))
                T.buffer_store(outs[0], tirx.BufferLoad(outs[0], [bin_number]) + const(1), [bin_number])
        return tirx.stmt_seq(filling.get(), builder.get())

    return te.extern([(const(0) + bins,)], [x, extent], body, name="counts", dtype="int64")
