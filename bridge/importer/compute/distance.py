# SPDX-License-Identifier: Apache-2.0
"""Distances between rows under the p-norm, and their gradients (ATen's DistanceOpsKernel.cpp has the cases)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from . import intrinsic
from . import pointwise as pw
from .layout import const
from .pointwise import cast, number
from .reduce import cast_all

Expr = Any


def p_norm(
    extents: Sequence[Any], shape: Sequence[Any], difference: Callable[..., Expr], p: float, accumulate: str, dtype: str
) -> te.Tensor:
    """The p-norm over the reduction `extents` of `difference(output index, reduced index)`, which is `accumulate`."""
    axes = [te.reduce_axis((const(0), const(0) + e), name=f"k{d}") for d, e in enumerate(extents)]

    def term(*i: Expr) -> Expr:
        size = pw.absolute(difference(i, axes))
        if p == 0:
            return tirx.Select(tirx.EQ(size, number(0, accumulate)), number(0, accumulate), number(1, accumulate))
        if p in (1, math.inf, -math.inf):
            return size
        return size * size if p == 2 else intrinsic.power(size, number(p, accumulate))

    if math.isinf(p):
        combine, start = (pw.maximum, -math.inf) if p > 0 else (pw.minimum, math.inf)
        reducer = te.comm_reducer(combine, lambda d: number(start, d), name="extreme")
        total = te.compute(tuple(shape), lambda *i: reducer(term(*i), axis=axes), name="norm")
    else:
        total = te.compute(tuple(shape), lambda *i: te.sum(term(*i), axis=axes), name="norm")
    if p in (0, 1) or math.isinf(p):
        return cast_all(total, dtype)

    def root(*i: Expr) -> Expr:
        value = tirx.sqrt(total(*i)) if p == 2 else intrinsic.power(total(*i), number(1 / p, accumulate))
        return cast(value, dtype)

    return te.compute(tuple(shape), root, name="norm_root")


def p_norm_slope(difference: Expr, distance: Expr, p: float) -> Expr:
    """The derivative of the distance by one difference; 0 where the distance is 0.

    `difference` in the dtype of the rows: under the infinity norm it is compared with the rounded `distance`.
    """
    dtype = pw.dtype_of(difference)
    zero = number(0, dtype)
    if p == 0:
        return zero
    if p == 1:
        return pw.sign(difference)
    if math.isinf(p):
        return tirx.Select(tirx.EQ(pw.absolute(difference), distance), pw.sign(difference), zero)
    safe = tirx.Select(tirx.EQ(distance, zero), number(1, dtype), distance)
    if p == 2:
        slope = difference / safe
    else:
        size = pw.absolute(difference)
        power = tirx.Select(tirx.EQ(size, zero), zero, intrinsic.power(size, number(p - 1, dtype)))
        slope = pw.sign(difference) * power / intrinsic.power(safe, number(p - 1, dtype))
    return tirx.Select(tirx.EQ(distance, zero), zero, slope)


def cdist(a: te.Tensor, b: te.Tensor, p: float, accumulate: str) -> te.Tensor:
    """[..., P, R] distances between the rows of `a` [..., P, M] and of `b` [..., R, M]."""
    shape = [*a.shape[:-1], b.shape[-2]]

    def difference(i: Sequence[Expr], k: Sequence[Expr]) -> Expr:
        return cast(a(*i[:-1], k[0]), accumulate) - cast(b(*i[:-2], i[-1], k[0]), accumulate)

    return p_norm([a.shape[-1]], shape, difference, p, accumulate, str(a.dtype))


def cdist_backward(
    grad: te.Tensor, a: te.Tensor, b: te.Tensor, distance: te.Tensor, p: float, accumulate: str
) -> te.Tensor:
    """The gradient of `cdist` for `a`."""
    axis = te.reduce_axis((const(0), b.shape[-2]), name="row")

    def element(*i: Expr) -> Any:
        pair = (*i[:-1], axis)
        slope = p_norm_slope(a(*i) - b(*i[:-2], axis, i[-1]), distance(*pair), p)
        return te.sum(cast(grad(*pair) * slope, accumulate), axis=axis)

    return cast_all(te.compute(a.shape, element, name="cdist_backward"), str(a.dtype))


def _pair(k: Expr, rows: Expr) -> tuple[Expr, Expr]:
    """Rows (i, j), i < j, of pair number `k`: pairs are ordered by i, then j. Exact for fewer than 2**25 rows."""
    wide = (const(0) + rows).astype("float64") - number(0.5, "float64")
    i = tirx.floor(wide - tirx.sqrt(wide * wide - k.astype("float64") * number(2, "float64") - number(1, "float64")))
    first = i.astype("int64")
    return first, k - rows * first + tirx.floordiv(first * (first + 1), const(2)) + first + 1


def pdist(x: te.Tensor, count: Any, p: float, accumulate: str) -> te.Tensor:
    """[N (N - 1) / 2] distances between the rows of `x` [N, M]."""
    rows = x.shape[0]

    def difference(i: Sequence[Expr], k: Sequence[Expr]) -> Expr:
        first, second = _pair(i[0], rows)
        # Rounding never takes a pair past the last row; the clamp is for the compiler's eyes and costs nothing.
        return cast(x(first, k[0]), accumulate) - cast(x(tirx.min(second, rows - 1), k[0]), accumulate)

    return p_norm([x.shape[1]], [count], difference, p, accumulate, str(x.dtype))


def pdist_backward(grad: te.Tensor, x: te.Tensor, distance: te.Tensor, p: float, accumulate: str) -> te.Tensor:
    """The gradient of `pdist`."""
    rows = x.shape[0]
    axis = te.reduce_axis((const(0), rows), name="row")

    def element(i: Expr, m: Expr) -> Any:
        low, high = tirx.min(i, axis.var), tirx.max(i, axis.var)
        pair = rows * low - tirx.floordiv(low * (low + 1), const(2)) + high - low - 1
        slope = p_norm_slope(x(i, m) - x(axis, m), distance(pair), p)
        term = tirx.if_then_else(tirx.NE(i, axis.var), cast(slope * grad(pair), accumulate), number(0, accumulate))
        return te.sum(term, axis=axis)

    return cast_all(te.compute(x.shape, element, name="pdist_backward"), str(x.dtype))
