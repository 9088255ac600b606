# SPDX-License-Identifier: Apache-2.0
"""Max pooling over windows of static kernels, and its gradient, as loops along rows that LLVM makes vectors of.

The general forms in pool.py ask for each element of each window whether it is one, and branch. Here branches are
selections, and the windows that reach over the ends of a row have loops of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from ...attributes import INDEPENDENT
from . import pointwise as pw
from .layout import const, element_count, flat_index, unflatten
from .pointwise import cast, number
from .program import Program
from .reduce import lowest
from .window import Axis

Expr = Any

#: Elements of a window that are written out.
MOST_TAPS = 32
#: Windows that hold one element, written out in the gradient.
MOST_HOLDERS = 9
#: Below this many elements of the output a parallel loop costs more than it gives.
PARALLEL_ELEMENTS = 1 << 13
_LARGEST_PLANE = 1 << 31  # positions in a smaller plane are computed in int32


def fits(axes: Sequence[Axis]) -> bool:
    """Whether `max_pool` and `gradient` take such windows."""
    few = math.prod(a.kernel for a in axes) <= MOST_TAPS and math.prod(a.holders for a in axes) <= MOST_HOLDERS
    return few and (not _is_static(axes) or math.prod(a.size for a in axes) < _LARGEST_PLANE)


def _is_static(axes: Sequence[Axis]) -> bool:
    return all(a.is_static for a in axes)


def max_pool(x: te.Tensor, axes: Sequence[Axis]) -> list[te.Tensor]:
    """[largest, its int64 row-major position in the spatial dims] of each window of the last dims of `x`.

    The first of equal elements; the last NaN where there is one (`val > max || isnan(val)`, ATen's MaxPoolKernel.cpp).
    """
    *row_axes, columns = axes
    lead = len(x.shape) - len(axes)
    shape = (*x.shape[:lead], *(a.count for a in axes))
    dtype, kind = str(x.dtype), "int32" if _is_static(axes) else "int64"

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        rows = element_count(shape[:-1])
        elements = rows * columns.count
        few = isinstance(elements, tirx.IntImm) and int(elements) < PARALLEL_ELEMENTS
        with IRBuilder() as builder, (T.serial if few else T.parallel)(0, rows, annotations={INDEPENDENT: 1}) as row:
            *at, last = unflatten(row, shape[:-1])
            program = Program()
            taps = [_row(program, row_axes, [*at[lead:], last], k) for k in _kernel(row_axes)]
            first, end = columns.whole
            for start, stop, edge in ((0, first, True), (first, end, False), (end, columns.count, True)):
                if not (start is stop or (columns.is_static and start >= stop)):
                    with T.serial(start, stop) as column:
                        index = [*at, last, column]
                        _window(program, ins[0], outs, index, lead, taps, columns, dtype, kind, edge)
        return builder.get()

    return list(te.extern([shape, shape], [x], body, name="max_pool", dtype=[dtype, "int64"]))


def _kernel(axes: Sequence[Axis]) -> list[tuple[int, ...]]:
    """The elements of a window, row-major."""
    return list(itertools.product(*(range(a.kernel) for a in axes)))


class _Tap:
    """One row of a window: where it lies, and whether it is one. `inside` is None where all are."""

    def __init__(self, index: list[Expr], start: Expr, inside: Expr | None):
        self.index, self.start, self.inside = index, start, inside


def _row(program: Program, axes: Sequence[Axis], window: Sequence[Expr], k: Sequence[int]) -> _Tap:
    index, found, start = [], [], const(0)
    for axis, o, tap in zip(axes, window[len(window) - len(axes) :], k, strict=True):
        at, inside = _element(axis, o, tap, not axis.stays_inside)
        index.append(program.let(at))
        found += [] if inside is None else [inside]
        start = start * axis.size + index[-1]
    return _Tap(index, start, program.let(tirx.all(*found)) if found else None)


def _element(axis: Axis, o: Expr, tap: int, edge: bool) -> tuple[Expr, Expr | None]:
    """(index of an element of window o, moved into the input; whether it was there, None where it surely is)."""
    at = o * const(axis.stride) + const(tap * axis.dilation - axis.padding)
    if not edge:
        return at, None
    moved = tirx.max(tirx.min(at, const(axis.size - 1)), const(0))
    return moved, tirx.all(at >= const(0), at < const(axis.size))


def _window(
    program: Program,
    x: Any,
    outs: Sequence[Any],
    index: Sequence[Expr],
    lead: int,
    taps: Sequence[_Tap],
    columns: Axis,
    dtype: str,
    kind: str,
    edge: bool,
) -> None:
    best, where = program.cell(lowest(dtype)), program.cell(tirx.const(-1, kind))
    for tap, k in itertools.product(taps, range(columns.kernel)):
        at, inside = _element(columns, index[-1], k, edge)
        value = program.let(tirx.BufferLoad(x, [*index[:lead], *tap.index, at]))
        larger = [value > best.get(), where.get() < tirx.const(0, kind)]
        larger += [pw.isnan(value)] if pw.is_float(value) else []
        take = tirx.any(*larger)
        conditions = [c for c in (tap.inside, inside) if c is not None]
        take = program.let(tirx.all(*conditions, take) if conditions else take)
        position = (tap.start * columns.size + at).astype(kind)
        where.set(tirx.Select(take, position, where.get()))
        best.set(tirx.Select(take, value, best.get()))
    T.buffer_store(outs[0], best.get(), index)
    T.buffer_store(outs[1], tirx.max(where.get(), tirx.const(0, kind)).astype("int64"), index)


def gradient(
    grad: te.Tensor, where: te.Tensor, shape: Sequence[Any], axes: Sequence[Axis], compute: str, dtype: str
) -> te.Tensor:
    """The gradient of `max_pool` for an input of `shape`, from that of its first output and its second output.

    Each element adds the gradients of the windows that chose it, in a fixed order.
    """
    lead = len(shape) - len(axes)

    def element(*i: Expr) -> Any:
        position = flat_index(i[lead:], shape[lead:])
        total = None
        for k in itertools.product(*(range(a.holders) for a in axes)):
            windows = [_holder(axis, at, number_) for axis, at, number_ in zip(axes, i[lead:], k, strict=True)]
            index = [*i[:lead], *(o for o, _ in windows)]
            chosen = [tirx.EQ(where(*index), position), *(c for _, conditions in windows for c in conditions)]
            term = tirx.Select(tirx.all(*chosen), cast(grad(*index), compute), number(0, compute))
            total = term if total is None else total + term
        return cast(total, dtype)

    return te.compute(tuple(shape), element, name="max_pool_gradient")


def _holder(axis: Axis, at: Expr, k: int) -> tuple[Expr, list[Expr]]:
    """(the k-th last window that may hold an element, moved to one that there is; what holds where it was one)."""
    o = tirx.floordiv(at + const(axis.padding), const(axis.stride)) - const(k)
    conditions = []
    if k:
        conditions.append(o >= const(0))
        o_inside = tirx.max(o, const(0))
    else:
        o_inside = o
    if not axis.is_static or (axis.size - 1 + axis.padding) // axis.stride - k >= axis.count:
        conditions.append(o < const(axis.count))
        o_inside = tirx.min(o_inside, const(axis.count - 1))
    return o_inside, conditions
