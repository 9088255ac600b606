# SPDX-License-Identifier: Apache-2.0
"""Resizing of images: one dim at a time, as a table of taps and a pass that reads or writes through it.

Every interpolation here is separable: along one dim, output element `o` is the sum of a few input elements `at[o, k]`
times `weight[o, k]`. The table of a dim is a kernel of its own; `gather` applies it, `scatter` applies its transpose
(the gradient). Coordinates follow ATen/native/UpSample.h, the antialiased windows UpSampleKernel.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from ...attributes import INDEPENDENT
from . import pointwise as pw
from .layout import const, unflatten
from .pointwise import cast, number
from .reduce import cast_all

Expr = Any


@dataclass(frozen=True)
class Axis:
    """One dim that is resized."""

    size: Any  # of the input
    count: Any  # of the output
    scale: float | None  # output over input as the caller gave it; None: from the sizes
    align_corners: bool
    compute: str  # dtype of coordinates and weights


def _rounded(value: float, dtype: str) -> float:
    return value if dtype == "float64" else float(torch.tensor(value, dtype=torch.float32))


def _step(axis: Axis) -> float | Expr:
    """Input elements from one output element to the next: a number, or an expression where sizes are symbolic."""
    scaled = axis.scale is not None and axis.scale > 0
    if scaled and not axis.align_corners:
        return _rounded(1.0 / axis.scale, axis.compute)  # type: ignore[operator]  # not None
    size, count = (axis.size - 1, axis.count - 1) if axis.align_corners else (axis.size, axis.count)
    if isinstance(size, int) and isinstance(count, int):
        return _rounded(size / count, axis.compute) if count > 0 else 0.0
    ratio = cast(const(0) + size, axis.compute) / cast(tirx.max(const(0) + count, const(1)), axis.compute)
    return tirx.Select(const(0) + count > const(0), ratio, number(0, axis.compute))


def _as_expr(value: float | Expr, dtype: str) -> Expr:
    return number(value, dtype) if isinstance(value, float) else value


def _same(a: Any, b: Any) -> bool | Expr:
    """Whether two sizes are equal, as a bool where it is known."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return tirx.EQ(const(0) + a, const(0) + b)


def _choose(condition: bool | Expr, a: Expr, b: Expr) -> Expr:
    if isinstance(condition, bool):
        return a if condition else b
    return tirx.Select(condition, a, b)


def _inside(at: Expr, axis: Axis) -> Expr:
    return tirx.max(tirx.min(at, const(0) + axis.size - 1), const(0))


def _table(axis: Axis, taps: Callable[[Expr], Sequence[tuple[Expr, Expr]]], reach: int) -> list[te.Tensor]:
    """[at, weight], each [count, reach], of the (position, weight) pairs that `taps` gives for an output element."""

    def chosen(o: Expr, k: Expr, part: int) -> Expr:
        values = [pair[part] for pair in taps(o)]
        found = values[-1]
        for number_of, value in reversed(list(enumerate(values[:-1]))):
            found = tirx.Select(tirx.EQ(k, const(number_of)), value, found)
        return found

    shape = (const(0) + axis.count, const(reach))
    return [
        te.compute(shape, lambda o, k: chosen(o, k, 0), name="tap_at"),
        te.compute(shape, lambda o, k: chosen(o, k, 1), name="tap_weight"),
    ]


def nearest(axis: Axis, exact: bool) -> list[te.Tensor]:
    """The element nearest to an output element: to its corner, or its middle (`exact`). In float32, as in ATen."""
    step = _as_expr(_step(replace(axis, compute="float32")), "float32")

    def taps(o: Expr) -> list[tuple[Expr, Expr]]:
        place = cast(o, "float32") + number(0.5, "float32") if exact else cast(o, "float32")
        at = cast(tirx.floor(place * step), "int64")
        if not exact:
            at = _choose(_same(axis.count, axis.size * 2), tirx.floordiv(o, const(2)), at)
            at = _choose(_same(axis.count, axis.size), o, at)
        return [(_inside(at, axis), number(1, axis.compute))]

    return _table(axis, taps, 1)


def _source(o: Expr, axis: Axis) -> Expr:
    """The coordinate of output element `o` in the input."""
    place, step = cast(o, axis.compute), _as_expr(_step(axis), axis.compute)
    if axis.align_corners:
        return place * step
    half = number(0.5, axis.compute)
    return (place + half) * step - half


def _split(x: Expr, axis: Axis) -> tuple[Expr, Expr]:
    """(element at or before `x`, distance from it in [0, 1])."""
    whole = _inside(cast(tirx.floor(x), "int64"), axis)
    rest = x - cast(whole, axis.compute)
    return whole, tirx.min(tirx.max(rest, number(0, axis.compute)), number(1, axis.compute))


def linear(axis: Axis) -> list[te.Tensor]:
    """The two neighbours of a point, weighted by distance; a dim that keeps its size is copied."""

    def taps(o: Expr) -> list[tuple[Expr, Expr]]:
        x = tirx.max(_source(o, axis), number(0, axis.compute))
        left, part = _split(x, axis)
        right = _inside(left + 1, axis)
        same = _same(axis.count, axis.size)
        part = _choose(same, number(0, axis.compute), part)
        left, right = _choose(same, o, left), _choose(same, o, right)
        return [(left, number(1, axis.compute) - part), (right, part)]

    return _table(axis, taps, 2)


def _near(x: Expr, a: float) -> Expr:
    """The cubic kernel of parameter `a` (R. Keys, 1981) for 0 <= x <= 1."""
    dtype = pw.dtype_of(x)
    return (number(a + 2, dtype) * x - number(a + 3, dtype)) * x * x + number(1, dtype)


def _far(x: Expr, a: float) -> Expr:
    """The same for 1 <= x <= 2."""
    dtype = pw.dtype_of(x)
    return ((number(a, dtype) * x - number(5 * a, dtype)) * x + number(8 * a, dtype)) * x - number(4 * a, dtype)


def cubic(axis: Axis) -> list[te.Tensor]:
    """Four neighbours by the cubic kernel; those beyond the border are the border."""
    a = -0.75

    def taps(o: Expr) -> list[tuple[Expr, Expr]]:
        one = number(1, axis.compute)
        # Not `_split`: before the first element the whole part is -1, and its four taps are clamped one by one.
        x = _source(o, axis)
        whole = tirx.min(cast(tirx.floor(x), "int64"), const(0) + axis.size - 1)
        part = tirx.min(tirx.max(x - cast(whole, axis.compute), number(0, axis.compute)), one)
        weights = [_far(part + one, a), _near(part, a), _near(one - part, a), _far(one - part + one, a)]
        return [(_inside(whole + (k - 1), axis), w) for k, w in enumerate(weights)]

    return _table(axis, taps, 4)


# ---- antialiased windows ----


@dataclass(frozen=True)
class Filter:
    """A filter of the antialiased resize: zero from `radius` on."""

    radius: int
    value: Callable[[Expr], Expr]  # of |x|


def _triangle(x: Expr) -> Expr:
    dtype = pw.dtype_of(x)
    return tirx.max(number(1, dtype) - x, number(0, dtype))


def _keys(x: Expr) -> Expr:
    dtype = pw.dtype_of(x)
    one, two = number(1, dtype), number(2, dtype)
    return tirx.Select(x < one, _near(x, -0.5), tirx.Select(x < two, _far(x, -0.5), number(0, dtype)))


def _sinc(x: Expr) -> Expr:
    dtype = pw.dtype_of(x)
    zero = tirx.EQ(x, number(0, dtype))
    safe = tirx.Select(zero, number(1, dtype), x) * number(math.pi, dtype)
    return tirx.Select(zero, number(1, dtype), tirx.sin(safe) / safe)


def _windowed_sinc(x: Expr) -> Expr:
    dtype = pw.dtype_of(x)
    return tirx.Select(x < number(3, dtype), _sinc(x) * _sinc(x / number(3, dtype)), number(0, dtype))


FILTERS = {"linear": Filter(1, _triangle), "cubic": Filter(2, _keys), "lanczos": Filter(3, _windowed_sinc)}


def _reach(axis: Axis, radius: int) -> Any:
    """Elements of a window, at most: 2 * ceil(radius * max(step, 1)) + 1."""
    step = _step(axis)
    if isinstance(step, float):
        return 2 * math.ceil(radius * max(step, 1.0)) + 1
    size, count = (axis.size - 1, axis.count - 1) if axis.align_corners else (axis.size, axis.count)
    count = tirx.max(const(0) + count, const(1))
    return tirx.max(tirx.floordiv(radius * size + count - 1, count), const(radius)) * 2 + 1


def antialiased(axis: Axis, kind: str) -> list[te.Tensor]:
    """The window of a filter that widens with the step when it shrinks, its weights normalised to sum to one.

    `at` is -1 where the window has fewer elements than the table has columns.
    """
    window = FILTERS[kind]
    dtype = axis.compute
    step = _step(axis)
    one, half = number(1, dtype), number(0.5, dtype)
    if isinstance(step, float):
        wide = number(max(step, 1.0), dtype)
        inverse = number(_rounded(1.0 / max(step, 1.0), dtype), dtype)
    else:
        wide = tirx.max(step, one)
        inverse = one / wide
    support = wide * number(window.radius, dtype)
    shape = (const(0) + axis.count, const(0) + _reach(axis, window.radius))

    def centre(o: Expr) -> Expr:
        return (cast(o, dtype) + half) * _as_expr(step, dtype)

    def first(o: Expr) -> Expr:
        return tirx.max(cast(centre(o) - support + half, "int64"), const(0))

    def position(o: Expr, k: Expr) -> Expr:
        end = tirx.min(cast(centre(o) + support + half, "int64"), const(0) + axis.size)
        at = first(o) + k
        return tirx.Select(at < end, at, const(-1))

    def raw(o: Expr, k: Expr) -> Expr:
        distance = (cast(first(o) + k, dtype) - centre(o) + half) * inverse
        inside = position(o, k) >= const(0)
        return tirx.Select(inside, window.value(pw.absolute(distance)), number(0, dtype))

    at = te.compute(shape, position, name="tap_at")
    values = te.compute(shape, raw, name="tap_value")
    k = te.reduce_axis((const(0), shape[1]), name="k")
    total = te.compute((shape[0],), lambda o: te.sum(values(o, k), axis=k), name="tap_total")

    def normalised(o: Expr, k: Expr) -> Expr:
        empty = tirx.EQ(total(o), number(0, dtype))
        return values(o, k) / tirx.Select(empty, one, total(o))

    return [at, te.compute(shape, normalised, name="tap_weight")]


# ---- passes ----


def gather(x: te.Tensor, at: te.Tensor, weight: te.Tensor, dim: int, dtype: str) -> te.Tensor:
    """`x` resized along `dim`: the weighted sum of each output element's taps, in the dtype of the weights."""
    compute = str(weight.dtype)
    k = te.reduce_axis((const(0), at.shape[1]), name="k")

    def element(*i: Expr) -> Any:
        o = i[dim]
        value = cast(x(*(at(o, k) if d == dim else e for d, e in enumerate(i))), compute)
        # A tap that is not there must not be multiplied by zero: what stands at its place may be infinite.
        return te.sum(tirx.if_then_else(at(o, k) >= const(0), value * weight(o, k), number(0, compute)), axis=k)

    shape = [at.shape[0] if d == dim else s for d, s in enumerate(x.shape)]
    return cast_all(te.compute(tuple(shape), element, name="resize"), dtype)


def scatter(grad: te.Tensor, at: te.Tensor, weight: te.Tensor, dim: int, size: Any, dtype: str) -> te.Tensor:
    """The transpose of `gather`: each element of `grad` along `dim` is added to its taps, `size` of them.

    The dims before `dim` go in parallel, each slice is one loop in order: sums do not depend on the threads.
    """
    compute = str(weight.dtype)
    shape = [const(0) + size if d == dim else s for d, s in enumerate(grad.shape)]
    before, behind = grad.shape[:dim], grad.shape[dim + 1 :]
    slices: Any = const(1)
    for extent in before:
        slices = slices * extent
    rest: Any = const(1)
    for extent in behind:
        rest = rest * extent

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        gradient, positions, weights, target = ins[0], ins[1], ins[2], outs[0]
        with IRBuilder() as builder, T.parallel(0, slices, annotations={INDEPENDENT: 1}) as s:
            lead = unflatten(s, before)

            def element(place: Expr, r: Expr) -> list[Expr]:
                return [*lead, place, *unflatten(r, behind)]

            with T.serial(0, const(0) + size) as i, T.serial(0, rest) as r:
                T.buffer_store(target, number(0, compute), element(i, r))
            with T.serial(0, grad.shape[dim]) as o, T.serial(0, at.shape[1]) as k:
                place = tirx.BufferLoad(positions, [o, k])
                with T.If(place >= const(0)), T.Then(), T.serial(0, rest) as r:
                    here = element(place, r)
                    term = cast(tirx.BufferLoad(gradient, element(o, r)), compute)
                    term = term * tirx.BufferLoad(weights, [o, k])
                    T.buffer_store(target, tirx.BufferLoad(target, here) + term, here)
        return builder.get()

    total = te.extern([shape], [grad, at, weight], body, name="resize_gradient", dtype=compute)
    return cast_all(total, dtype)
