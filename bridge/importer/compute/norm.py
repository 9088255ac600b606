# SPDX-License-Identifier: Apache-2.0
"""Softmax and normalisations: several reductions over the same rows and the element-wise work between them."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from .layout import const
from .pointwise import cast, number
from .reduce import amax, cast_all, mean, sum_as


def _kept(i: tuple[Any, ...], dims: list[int]) -> list[Any]:
    return [const(0) if d in dims else k for d, k in enumerate(i)]


def _shifted(x: te.Tensor, dim: int, compute: str) -> te.Tensor:
    wide = cast_all(x, compute)
    top = amax(wide, [dim], True)
    return te.compute(x.shape, lambda *i: wide(*i) - top(*_kept(i, [dim])), name="shifted")


def softmax(x: te.Tensor, dim: int, compute: str, accumulate: str, dtype: str) -> te.Tensor:
    """exp(x - max) / sum(exp(x - max)) along `dim`."""
    shifted = _shifted(x, dim, compute)
    e = te.compute(x.shape, lambda *i: tirx.exp(shifted(*i)), name="exponential")
    total = sum_as(e, [dim], True, accumulate, compute)
    return te.compute(x.shape, lambda *i: cast(e(*i) / total(*_kept(i, [dim])), dtype), name="softmax")


def log_softmax(x: te.Tensor, dim: int, compute: str, accumulate: str, dtype: str) -> te.Tensor:
    """x - max - log(sum(exp(x - max))) along `dim`."""
    shifted = _shifted(x, dim, compute)
    e = te.compute(x.shape, lambda *i: tirx.exp(shifted(*i)), name="exponential")
    total = sum_as(e, [dim], True, accumulate, compute)
    log_total = te.compute(total.shape, lambda *i: tirx.log(total(*i)), name="log_total")
    return te.compute(x.shape, lambda *i: cast(shifted(*i) - log_total(*_kept(i, [dim])), dtype), name="log_softmax")


def moments(x: te.Tensor, dims: list[int], eps: float, compute: str, accumulate: str) -> tuple[te.Tensor, te.Tensor]:
    """Mean and 1/sqrt(biased variance + eps) along `dims`, kept as dims of size one, in `compute`."""
    average = mean(x, dims, True, accumulate, accumulate)

    def square(*i: Any) -> Any:
        d = cast(x(*i), accumulate) - average(*_kept(i, dims))
        return d * d

    squares = te.compute(x.shape, square, name="squares")
    variance = mean(squares, dims, True, accumulate, accumulate)

    def inverse_deviation(*i: Any) -> Any:
        return cast(number(1, accumulate) / tirx.sqrt(variance(*i) + number(eps, accumulate)), compute)

    return cast_all(average, compute), te.compute(variance.shape, inverse_deviation, name="rstd")


def layer_norm(
    x: te.Tensor, weight: te.Tensor | None, bias: te.Tensor | None, axis: int, eps: float, compute: str,
    accumulate: str, dtype: str, stat_dtype: str,
) -> list[te.Tensor]:  # fmt: skip
    """[output, mean, rstd]: normalised over the dims from `axis` on; the statistics keep those dims with size one."""
    rank = len(x.shape)
    dims = list(range(axis, rank))
    average, rstd = moments(x, dims, eps, compute, accumulate)

    def normalize(*i: Any) -> Any:
        at = _kept(i, dims)
        value = (cast(x(*i), compute) - average(*at)) * rstd(*at)
        if weight is not None:
            value = value * cast(weight(*i[axis:]), compute)
        if bias is not None:
            value = value + cast(bias(*i[axis:]), compute)
        return cast(value, dtype)

    out = te.compute(x.shape, normalize, name="layer_norm")
    return [out, cast_all(average, stat_dtype), cast_all(rstd, stat_dtype)]


def batch_norm(
    x: te.Tensor, mean: te.Tensor, variance: te.Tensor, weight: te.Tensor | None, bias: te.Tensor | None, eps: float,
    compute: str, dtype: str,
) -> te.Tensor:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) * weight + bias with statistics and parameters by channel, which is dim 1."""

    def normalize(*i: Any) -> Any:
        c = i[1]
        rstd = number(1, compute) / tirx.sqrt(cast(variance(c), compute) + number(eps, compute))
        value = (cast(x(*i), compute) - cast(mean(c), compute)) * rstd
        if weight is not None:
            value = value * cast(weight(c), compute)
        if bias is not None:
            value = value + cast(bias(c), compute)
        return cast(value, dtype)

    return te.compute(x.shape, normalize, name="batch_norm")


def group_norm(
    x: te.Tensor, weight: te.Tensor | None, bias: te.Tensor | None, groups: int, each: int, eps: float, compute: str,
    accumulate: str, dtype: str, stat_dtype: str,
) -> list[te.Tensor]:  # fmt: skip
    """[output, mean, rstd]: `x` [N, groups * each, ...] normalised over each group; statistics are [N, groups]."""
    grouped = te.compute(
        (x.shape[0], groups, each, *x.shape[2:]),
        lambda n, g, c, *rest: cast(x(n, g * each + c, *rest), compute),
        name="grouped",
    )
    dims = list(range(2, len(grouped.shape)))
    average, rstd = moments(grouped, dims, eps, compute, accumulate)

    def normalize(n: Any, c: Any, *rest: Any) -> Any:
        at = [n, tirx.floordiv(c, const(each)), *[const(0)] * len(dims)]
        value = (cast(x(n, c, *rest), compute) - average(*at)) * rstd(*at)
        if weight is not None:
            value = value * cast(weight(c), compute)
        if bias is not None:
            value = value + cast(bias(c), compute)
        return cast(value, dtype)

    def flat(statistic: te.Tensor) -> te.Tensor:
        zeros = [const(0)] * len(dims)
        shape = (x.shape[0], groups)
        return te.compute(shape, lambda n, g: cast(statistic(n, g, *zeros), stat_dtype), name="statistic")

    return [te.compute(x.shape, normalize, name="group_norm"), flat(average), flat(rstd)]
