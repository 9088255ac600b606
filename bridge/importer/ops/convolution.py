"""Convolution and its gradients: ATen's kernels (oneDNN), except where each channel has a filter of its own.

Which depthwise kernels are ours follows from measurements (docs/performance.md): oneDNN's are as good or better for its
gradient of a 3x3 filter at a stride, and for the forward pass of filters above 5x5; its gradients of larger filters, of
dilated ones and of channel counts that are no multiple of its vector are several times slower.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from ...kinds import Kind
from ..compute import depthwise
from ..compute import reduce as rd
from ..compute.window import Axis
from ..context import ConversionContext
from ..registry import register
from ..types import accumulator, is_empty
from ..values import TensorValue
from .pool import each_dim

aten = torch.ops.aten

#: A plane with its padding must stay in the second-level cache.
LARGEST_PLANE = 1 << 19
#: Lanes of oneDNN's kernels: other channel counts take its plain ones.
ONEDNN_LANES = 16

Axes = tuple[Axis, Axis]


def _axes(
    ctx: ConversionContext,
    x: TensorValue,
    weight: TensorValue,
    out: Sequence[Any],
    arguments: Sequence[Any],
    groups: int,
) -> Axes | None:
    """The two spatial dims of a depthwise convolution that we have kernels for; None for any other."""
    stride, padding, dilation, transposed, _ = arguments
    numbers = [*x.shape[1:], *weight.shape, *out[2:], *stride, *padding, *dilation, groups]
    if transposed or len(x.shape) != 4 or x.dtype not in ("float32", "float64") or weight.dtype != x.dtype:
        return None
    if not all(isinstance(n, int) for n in numbers) or is_empty(x.shape) or is_empty(out):
        return None
    if groups < 2 or not groups == x.shape[1] == weight.shape[0]:
        return None
    arguments_of_dims = (each_dim(ctx, values, 2) for values in (stride, padding, dilation))
    rows, columns = itertools.starmap(
        Axis, zip(x.shape[2:], out[2:], weight.shape[2:], *arguments_of_dims, strict=True)
    )
    if depthwise.buffer_bytes(rows, columns, 8 if x.dtype == "float64" else 4) > LARGEST_PLANE:
        return None
    return rows, columns


def _is_regular(axes: Axes, channels: int) -> bool:
    """Whether oneDNN has its best kernels for it."""
    return channels % ONEDNN_LANES == 0 and all(axis.dilation == 1 for axis in axes)


def _largest_filter(axes: Axes) -> int:
    return max(axis.kernel for axis in axes)


@register(aten.convolution.default, kind=Kind.LIBRARY)
def convert_convolution(
    ctx: ConversionContext, x: TensorValue, weight: TensorValue, bias: TensorValue | None, *arguments: Any
) -> Any:
    *layout, groups = arguments
    axes = _axes(ctx, x, weight, ctx.dims(ctx.fake.shape), layout, groups)
    if axes is None or (_largest_filter(axes) > 5 and _is_regular(axes, x.shape[1])):
        return ctx.extern.call_node(ctx.node, Kind.LIBRARY, non_aliasing=True)
    ctx.ran_as = Kind.NATIVE
    if bias is None:
        return ctx.compute(lambda a, w: depthwise.convolution(a, w, None, *axes), [x, weight])
    return ctx.compute(lambda a, w, b: depthwise.convolution(a, w, b, *axes), [x, weight, bias])


@register(aten.convolution_backward.default, kind=Kind.LIBRARY)
def convert_convolution_backward(
    ctx: ConversionContext, grad: TensorValue, x: TensorValue, weight: TensorValue, bias_sizes: Any, *arguments: Any
) -> Any:
    *layout, groups, mask = arguments
    axes = _axes(ctx, x, weight, grad.shape, layout, groups)
    strided = axes is not None and any(axis.stride > 1 for axis in axes)
    if axes is None or (strided and _largest_filter(axes) <= 3 and _is_regular(axes, x.shape[1])):
        return ctx.extern.call_node(ctx.node, Kind.LIBRARY, non_aliasing=True)
    for_input = for_weight = for_bias = None
    ctx.ran_as = Kind.NATIVE
    if mask[0] and strided:
        ctx.ran_as = Kind.LIBRARY
        call = (grad, x, weight, None, *layout, groups, [True, False, False])
        fakes = (ctx.fake[0], None, None)
        for_input = ctx.extern.call(
            aten.convolution_backward.default, call, {}, fakes, Kind.LIBRARY, non_aliasing=True
        )[0]
    elif mask[0]:
        for_input = ctx.compute(lambda g, w: depthwise.input_gradient(g, w, *axes), [grad, weight])
    if mask[1]:
        for_weight = ctx.compute(lambda g, a: depthwise.weight_gradient(g, a, *axes), [grad, x])
    if mask[2]:
        for_bias = ctx.compute(rd.sum_as, [grad], [0, 2, 3], False, accumulator(grad.dtype), grad.dtype)
    return for_input, for_weight, for_bias
