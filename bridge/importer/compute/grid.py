# SPDX-License-Identifier: Apache-2.0
"""Sampling of images at the points of a grid, over two or three spatial dims (ATen's GridSamplerUtils.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from . import pointwise as pw
from .index import loops
from .layout import const
from .pointwise import cast, number
from .reduce import cast_all

Expr = Any

BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2
_A = -0.75  # of the bicubic kernel


@dataclass(frozen=True)
class Sampler:
    """How points become weighted elements."""

    interpolation: int
    padding: int
    align_corners: bool
    compute: str  # dtype


@dataclass(frozen=True)
class Tap:
    """One element that a point reads along one dim."""

    at: Expr  # int64, may lie outside
    weight: Expr
    slope: Expr  # of the weight, by the grid's coordinate


@dataclass(frozen=True)
class Taps:
    """The taps of every point along one dim: tensors [N, *places, taps of a point], see `tap_tensors`."""

    at: te.Tensor
    weight: te.Tensor
    slope: te.Tensor

    def read(self, load: Any, batch: Expr, place: Sequence[Expr], k: int) -> Tap:
        """Tap `k` of the point at `place`; `load` reads a tensor at an index."""
        return Tap(*(load(t, [batch, *place, const(k)]) for t in (self.at, self.weight, self.slope)))


def _taps(point: Expr, size: Any, how: Sampler) -> list[Tap]:
    """The elements that the coordinate `point`, in [-1, 1], reads along a dim of `size`."""

    def n(value: float) -> Expr:
        return number(value, how.compute)

    extent = cast(const(0) + size, how.compute)
    if how.align_corners:
        x, factor = (point + n(1)) / n(2) * (extent - n(1)), (extent - n(1)) / n(2)
    else:
        x, factor = ((point + n(1)) * extent - n(1)) / n(2), extent / n(2)
    if how.interpolation == BICUBIC:
        whole = tirx.floor(x)
        weights, slopes = _cubic(x - whole, how.compute)
        return [
            Tap(_padded(whole + n(k - 1), factor, extent, how)[0].astype("int64"), w, s * factor)
            for k, (w, s) in enumerate(zip(weights, slopes, strict=True))
        ]
    x, factor = _padded(x, factor, extent, how)
    if how.interpolation == NEAREST:
        return [Tap(tirx.nearbyint(x).astype("int64"), n(1), n(0))]
    whole = tirx.floor(x)
    left = whole.astype("int64")
    return [Tap(left, whole + n(1) - x, pw.negative(factor)), Tap(left + 1, x - whole, factor)]


def _padded(x: Expr, factor: Expr, extent: Expr, how: Sampler) -> tuple[Expr, Expr]:
    """(`x` brought inside, the slope by the grid's coordinate after that)."""

    def n(value: float) -> Expr:
        return number(value, how.compute)

    if how.padding == ZEROS:
        return x, factor
    if how.padding == REFLECTION:
        low = n(0) if how.align_corners else n(-0.5)
        span = extent - n(1) if how.align_corners else extent
        distance = pw.absolute(x - low)
        # One element and aligned corners: everything is that element.
        safe = tirx.Select(span > n(0), span, n(1))
        extra = pw.fmod(distance, safe)
        odd = tirx.EQ(pw.fmod(tirx.floor(distance / safe), n(2)), n(1))
        sign = tirx.Select(odd, pw.negative(factor), factor)
        sign = tirx.Select(x < low, pw.negative(sign), sign)
        x = tirx.Select(span > n(0), tirx.Select(odd, span - extra + low, extra + low), n(0))
        factor = tirx.Select(span > n(0), sign, n(0))
    last = extent - n(1)
    inside = tirx.all(x > n(0), x < last)
    # Beyond the border, and for NaN, the nearest border; a comparison that a NaN fails picks 0.
    clipped = tirx.Select(x > n(0), tirx.Select(x < last, x, last), n(0))
    return clipped, tirx.Select(inside, factor, n(0))


def _cubic(t: Expr, dtype: str) -> tuple[list[Expr], list[Expr]]:
    """Weights of the elements at -1, 0, 1, 2 for a point `t` in [0, 1) behind 0, and their slopes by `t`."""

    def n(value: float) -> Expr:
        return number(value, dtype)

    def near(x: Expr) -> Expr:
        return ((n(_A + 2) * x - n(_A + 3)) * x) * x + n(1)

    def far(x: Expr) -> Expr:
        return ((n(_A) * x - n(5 * _A)) * x + n(8 * _A)) * x - n(4 * _A)

    def near_slope(x: Expr) -> Expr:
        return (n(3 * (_A + 2)) * x - n(2 * (_A + 3))) * x

    def far_slope(x: Expr) -> Expr:
        return (n(3 * _A) * x - n(10 * _A)) * x + n(8 * _A)

    back = n(1) - t
    weights = [far(t + n(1)), near(t), near(back), far(back + n(1))]
    slopes = [far_slope(t + n(1)), near_slope(t), n(-1) * near_slope(back), n(-1) * far_slope(back + n(1))]
    return weights, slopes


def tap_count(how: Sampler) -> int:
    """Elements that a point reads along one dim."""
    return {BILINEAR: 2, NEAREST: 1, BICUBIC: 4}[how.interpolation]


def tap_tensors(grid: te.Tensor, size: Any, coordinate: int, how: Sampler) -> list[te.Tensor]:
    """[at, weight, slope] of every point along the dim of `size` that the grid's `coordinate` stands for.

    A kernel of their own: as expressions inside the kernels that read them they would be repeated for every tap.
    """
    shape = (*grid.shape[:-1], const(tap_count(how)))

    def chosen(*i: Expr) -> Tap:
        taps = _taps(cast(grid(*i[:-1], const(coordinate)), how.compute), size, how)
        at, weight, slope = taps[-1].at, taps[-1].weight, taps[-1].slope
        for k, tap in reversed(list(enumerate(taps[:-1]))):
            here = tirx.EQ(i[-1], const(k))
            at, weight = tirx.Select(here, tap.at, at), tirx.Select(here, tap.weight, weight)
            slope = tirx.Select(here, tap.slope, slope)
        return Tap(at, weight, slope)

    return [
        te.compute(shape, lambda *i: chosen(*i).at, name="tap_at"),
        te.compute(shape, lambda *i: chosen(*i).weight, name="tap_weight"),
        te.compute(shape, lambda *i: chosen(*i).slope, name="tap_slope"),
    ]


def _combinations(taps: Sequence[Taps], how: Sampler) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()]
    for _ in taps:
        found = [(*before, k) for before in found for k in range(tap_count(how))]
    return found


def _chosen(taps: Sequence[Taps], load: Any, batch: Expr, place: Sequence[Expr], ks: Sequence[int]) -> list[Tap]:
    return [t.read(load, batch, place, k) for t, k in zip(taps, ks, strict=True)]


def _load(tensor: te.Tensor, index: Sequence[Expr]) -> Expr:
    return tensor(*index)


def _inside(taps: Sequence[Tap], sizes: Sequence[Any]) -> Expr:
    return tirx.all(
        *(c for tap, s in zip(taps, sizes, strict=True) for c in (tap.at >= const(0), tap.at < const(0) + s))
    )


def _product(values: Sequence[Expr]) -> Expr:
    result = values[0]
    for value in values[1:]:
        result = result * value
    return result


def sample(x: te.Tensor, taps: Sequence[Taps], how: Sampler) -> te.Tensor:
    """`x` [N, C, *sizes] at the points of `taps`, one a spatial dim: [N, C, *places]."""
    sizes = list(x.shape[2:])

    def element(batch: Expr, channel: Expr, *place: Expr) -> Expr:
        total: Expr = number(0, how.compute)
        for ks in _combinations(taps, how):
            chosen = _chosen(taps, _load, batch, place, ks)
            value = cast(x(batch, channel, *(t.at for t in chosen)), how.compute)
            term = tirx.if_then_else(_inside(chosen, sizes), value, number(0, how.compute))
            total = total + term * _product([t.weight for t in chosen])
        return cast(total, str(x.dtype))

    return te.compute((x.shape[0], x.shape[1], *taps[0].at.shape[1:-1]), element, name="grid_sample")


def sample_input_gradient(grad: te.Tensor, taps: Sequence[Taps], shape: Sequence[Any], how: Sampler) -> te.Tensor:
    """The gradient of `sample` for its input of `shape`: every point adds to the elements that it reads."""
    sizes = list(shape[2:])
    inputs = [t for tap in taps for t in (tap.at, tap.weight)]

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        gradient, buffers, target = ins[0], ins[1:], outs[0]
        clear: list[Any] = []
        with IRBuilder() as first, loops(target.shape, clear, independent=True):
            T.buffer_store(target, number(0, how.compute), clear)
        index: list[Any] = []
        with IRBuilder() as second, loops(gradient.shape, index):
            for ks in _combinations(taps, how):
                places = [[index[0], *index[2:], const(k)] for k in ks]
                at = [tirx.BufferLoad(buffers[2 * d], p) for d, p in enumerate(places)]
                weight = _product([tirx.BufferLoad(buffers[2 * d + 1], p) for d, p in enumerate(places)])
                inside = tirx.all(
                    *(c for a, s in zip(at, sizes, strict=True) for c in (a >= const(0), a < const(0) + s))
                )
                with T.If(inside), T.Then():
                    element = [index[0], index[1], *at]
                    term = cast(tirx.BufferLoad(gradient, index), how.compute) * weight
                    T.buffer_store(target, tirx.BufferLoad(target, element) + term, element)
        return tirx.stmt_seq(first.get(), second.get())

    total = te.extern([shape], [grad, *inputs], body, name="grid_gradient", dtype=how.compute)
    return cast_all(total, str(grad.dtype))


def sample_grid_gradient(
    grad: te.Tensor, x: te.Tensor, taps: Sequence[Taps], how: Sampler, accumulate: str, dtype: str
) -> te.Tensor:
    """The gradient of `sample` for its grid, whose last coordinate belongs to the first spatial dim."""
    sizes = list(x.shape[2:])
    rank = len(sizes)
    axis = te.reduce_axis((const(0), x.shape[1]), name="channel")

    def element(batch: Expr, *rest: Expr) -> Any:
        place, coordinate = rest[:-1], rest[-1]
        total: Expr = number(0, how.compute)
        for ks in _combinations(taps, how):
            chosen = _chosen(taps, _load, batch, place, ks)
            value = cast(x(batch, axis, *(t.at for t in chosen)), how.compute)
            factors = [
                tirx.Select(tirx.EQ(coordinate, const(rank - 1 - d)), t.slope, t.weight) for d, t in enumerate(chosen)
            ]
            term = tirx.if_then_else(_inside(chosen, sizes), value, number(0, how.compute))
            total = total + term * _product(factors)
        return te.sum(cast(total * cast(grad(batch, axis, *place), how.compute), accumulate), axis=axis)

    shape = (*taps[0].at.shape[:-1], const(rank))
    return cast_all(te.compute(shape, element, name="grid_slope"), dtype)
