# SPDX-License-Identifier: Apache-2.0
"""grid_sampler over two and three dims, and its gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tvm import te

from ...kinds import ReasonKind
from ..compute import grid as gr
from ..context import ConversionContext
from ..registry import register
from ..types import opmath
from ..values import TensorValue

aten = torch.ops.aten


Taps = tuple[list[TensorValue], gr.Sampler]


def _taps(
    ctx: ConversionContext, x: TensorValue, grid: TensorValue, interpolation: int, padding: int, align_corners: bool
) -> Taps:
    """The three tensors of `gr.tap_tensors` for each spatial dim, one after the other, and how to sample."""
    if any(isinstance(d, int) and d == 0 for d in x.shape):
        raise ctx.refuse(ReasonKind.ARGUMENTS, "no elements")
    how = gr.Sampler(interpolation, padding, align_corners, opmath(x.dtype))
    rank = x.ndim - 2
    found: list[TensorValue] = []
    for d in range(rank):
        found.extend(ctx.compute_many(gr.tap_tensors, [grid], x.shape[2 + d], rank - 1 - d, how))
    return found, how


def _grouped(tensors: Sequence[te.Tensor]) -> list[gr.Taps]:
    return [gr.Taps(*tensors[k : k + 3]) for k in range(0, len(tensors), 3)]


@register(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def convert_grid_sampler(
    ctx: ConversionContext, x: TensorValue, grid: TensorValue, interpolation: int, padding: int, align_corners: bool
) -> TensorValue:
    taps, how = _taps(ctx, x, grid, interpolation, padding, align_corners)
    return ctx.compute(lambda t, *rest: gr.sample(t, _grouped(rest), how), [x, *taps])


@register(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def convert_grid_sampler_backward(
    ctx: ConversionContext,
    grad: TensorValue,
    x: TensorValue,
    grid: TensorValue,
    interpolation: int,
    padding: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[TensorValue | None, ...]:
    taps, how = _taps(ctx, x, grid, interpolation, padding, align_corners)
    wide = ctx.accumulator(x.dtype)

    def for_input(g: te.Tensor, *rest: te.Tensor) -> te.Tensor:
        return gr.sample_input_gradient(g, _grouped(rest), x.shape, how)

    def for_grid(g: te.Tensor, t: te.Tensor, *rest: te.Tensor) -> te.Tensor:
        return gr.sample_grid_gradient(g, t, _grouped(rest), how, wide, grid.dtype)

    return (
        ctx.compute(for_input, [grad, *taps]) if output_mask[0] else None,
        ctx.compute(for_grid, [grad, x, *taps]) if output_mask[1] else None,
    )
