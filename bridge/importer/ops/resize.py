# SPDX-License-Identifier: Apache-2.0
"""Resizing of images that the decomposition table leaves whole: gradients, and the antialiased ones both ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...kinds import ReasonKind
from ..compute import resize
from ..context import ConversionContext
from ..registry import overload, register
from ..types import opmath
from ..values import TensorValue

aten = torch.ops.aten

Table = Callable[[resize.Axis], list[Any]]


def _axes(
    ctx: ConversionContext,
    sizes: Sequence[Any],
    counts: Sequence[Any],
    align_corners: bool,
    scales: Sequence[Any],
    compute: str,
) -> list[resize.Axis]:
    """One a spatial dim, from the sizes of the input and of the output."""
    if any(not (s is None or isinstance(s, float | int)) for s in scales):
        raise ctx.refuse(ReasonKind.SYMBOLIC, "a symbolic scale")
    return [
        resize.Axis(size, count, scale, align_corners, compute)
        for size, count, scale in zip(sizes, counts, scales, strict=True)
    ]


def _gradient(ctx: ConversionContext, grad: TensorValue, axes: Sequence[resize.Axis], table: Table) -> TensorValue:
    """The last dim first, so that what goes from one pass to the next is no larger than it must be."""
    value, dtype = grad, grad.dtype
    for k, axis in reversed(list(enumerate(axes))):
        at, weight = ctx.compute_many(lambda axis=axis: table(axis), [])
        last = dtype if k == 0 else opmath(dtype)
        value = ctx.compute(resize.scatter, [value, at, weight], 2 + k, axis.size, last)
    return value


def _backward(rank: int, table: Table, aligns: bool) -> Callable[..., TensorValue]:
    """Arguments: grad, sizes of the output, of the input, `align_corners` where the op has it, a scale for each dim."""

    def convert(
        ctx: ConversionContext, grad: TensorValue, output_size: Sequence[Any], input_size: Sequence[Any], *rest: Any
    ) -> TensorValue:
        if not grad.dtype.startswith(("float", "bfloat")):
            raise ctx.refuse(ReasonKind.DTYPE, grad.dtype)
        sizes, counts = ctx.dims(input_size)[2:], grad.shape[2:]
        arguments = rest[0] if aligns else False, rest[-rank:], opmath(grad.dtype)
        return _gradient(ctx, grad, _axes(ctx, sizes, counts, *arguments), table)

    return convert


def _nearest(exact: bool) -> Table:
    return lambda axis: resize.nearest(axis, exact)


def _antialiased(kind: str) -> Table:
    return lambda axis: resize.antialiased(axis, kind)


for _rank in (1, 2, 3):
    register(overload(f"aten.upsample_nearest{_rank}d_backward.default"))(_backward(_rank, _nearest(False), False))
    register(overload(f"aten._upsample_nearest_exact{_rank}d_backward.default"))(
        _backward(_rank, _nearest(True), False)
    )

register(aten.upsample_linear1d_backward.default)(_backward(1, resize.linear, True))
register(aten.upsample_bilinear2d_backward.default)(_backward(2, resize.linear, True))
register(aten.upsample_trilinear3d_backward.default)(_backward(3, resize.linear, True))
register(aten.upsample_bicubic2d_backward.default)(_backward(2, resize.cubic, True))


def _forward(rank: int, table: Table) -> Callable[..., TensorValue]:
    def convert(
        ctx: ConversionContext, x: TensorValue, output_size: Sequence[Any], align_corners: bool, *scales: Any
    ) -> TensorValue:
        # uint8 has an integer arithmetic of its own in ATen.
        if not x.dtype.startswith(("float", "bfloat")):
            raise ctx.refuse(ReasonKind.DTYPE, x.dtype)
        value, counts = x, ctx.dims(ctx.fake.shape)[2:]
        axes = _axes(ctx, x.shape[2:], counts, align_corners, scales, opmath(x.dtype))
        for k, axis in reversed(list(enumerate(axes))):
            at, weight = ctx.compute_many(lambda axis=axis: table(axis), [])
            value = ctx.compute(resize.gather, [value, at, weight], 2 + k, x.dtype if k == 0 else opmath(x.dtype))
        return value

    return convert


for _kind, _op in (("linear", "bilinear2d"), ("cubic", "bicubic2d"), ("lanczos", "lanczos2d")):
    for _overload, _make in (
        (overload(f"aten._upsample_{_op}_aa.default"), _forward(2, _antialiased(_kind))),
        (overload(f"aten._upsample_{_op}_aa_backward.default"), _backward(2, _antialiased(_kind), True)),
    ):
        if _overload is not None:  # torch 2.13 is the first with lanczos
            register(_overload)(_make)
