# SPDX-License-Identifier: Apache-2.0
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

from ....importer.compute import reduce as rd
from ....importer.compute.window import Axis
from ....importer.context import ConversionContext
from ....importer.registry import Call, register
from ....importer.values import TensorValue
from ....kinds import Kind
from ..compute import depthwise

aten = torch.ops.aten

#: A plane with its padding must stay in the second-level cache.
LARGEST_PLANE = 1 << 19
#: Lanes of oneDNN's kernels: other channel counts take its plain ones.
ONEDNN_LANES = 16

Axes = tuple[Axis, Axis]


def _axes(x: Any, weight: Any, out: Sequence[Any], arguments: Sequence[Any], groups: Any) -> Axes | None:
    """The two spatial dims of a depthwise convolution that we have kernels for; None for any other.

    Of tensors of a graph, or of the values that stand for them: sizes that are no ints have no kernel.
    """
    stride, padding, dilation, transposed, _ = arguments
    numbers = [*x.shape[1:], *weight.shape, *out[2:], *stride, *padding, *dilation, groups]
    if transposed or len(x.shape) != 4 or not all(isinstance(n, int) for n in numbers) or 0 in (*x.shape, *out):
        return None
    if groups < 2 or not groups == x.shape[1] == weight.shape[0]:
        return None
    each = (list(values) * 2 if len(values) == 1 else values for values in (stride, padding, dilation))
    rows, columns = itertools.starmap(Axis, zip(x.shape[2:], out[2:], weight.shape[2:], *each, strict=True))
    wide = str(x.dtype).removeprefix("torch.") == "float64"
    if depthwise.buffer_bytes(rows, columns, 8 if wide else 4) > LARGEST_PLANE:
        return None
    return rows, columns


def _is_regular(axes: Axes, channels: int) -> bool:
    """Whether oneDNN has its best kernels for it."""
    return channels % ONEDNN_LANES == 0 and all(axis.dilation == 1 for axis in axes)


def _largest_filter(axes: Axes) -> int:
    return max(axis.kernel for axis in axes)


def _is_strided(axes: Axes) -> bool:
    return any(axis.stride > 1 for axis in axes)


def _is_ours(call: Call) -> bool:
    x, weight, _, *layout, groups = call.args
    axes = _axes(x, weight, call.fake.shape, layout, groups) if weight.dtype == x.dtype else None
    return axes is not None and not (_largest_filter(axes) > 5 and _is_regular(axes, x.shape[1]))


def _is_gradient_ours(call: Call) -> bool:
    """Whether the gradients are ours, that of the input aside where there is a stride."""
    grad, x, weight, _, *layout, groups, _ = call.args
    axes = _axes(x, weight, grad.shape, layout, groups) if weight.dtype == x.dtype else None
    if axes is None:
        return False
    return not (_is_strided(axes) and _largest_filter(axes) <= 3 and _is_regular(axes, x.shape[1]))


def _has_library_part(call: Call) -> bool:
    """Whether oneDNN has a part in the gradients: that of the input of a convolution with a stride."""
    return call.args[-1][0] and any(step > 1 for step in call.args[4])


@register(aten.convolution.default, device="cpu", dtypes=("float32", "float64"), when=_is_ours)
def generate_convolution(
    ctx: ConversionContext, x: TensorValue, weight: TensorValue, bias: TensorValue | None, *arguments: Any
) -> Any:
    *layout, groups = arguments
    axes = _axes(x, weight, ctx.fake.shape, layout, groups)
    assert axes is not None
    if bias is None:
        return ctx.compute(lambda a, w: depthwise.convolution(a, w, None, *axes), [x, weight])
    return ctx.compute(lambda a, w, b: depthwise.convolution(a, w, b, *axes), [x, weight, bias])


@register(
    aten.convolution_backward.default,
    device="cpu",
    dtypes=("float32", "float64"),
    when=lambda call: _is_gradient_ours(call) and not _has_library_part(call),
)
def generate_convolution_backward(
    ctx: ConversionContext, grad: TensorValue, x: TensorValue, weight: TensorValue, bias_sizes: Any, *arguments: Any
) -> Any:
    *layout, groups, mask = arguments
    axes = _axes(x, weight, grad.shape, layout, groups)
    assert axes is not None
    for_input = for_weight = for_bias = None
    if mask[0] and not _is_strided(axes):
        for_input = ctx.compute(lambda g, w: depthwise.input_gradient(g, w, *axes), [grad, weight])
    if mask[1]:
        for_weight = ctx.compute(lambda g, a: depthwise.weight_gradient(g, a, *axes), [grad, x])
    if mask[2]:
        for_bias = ctx.compute(rd.sum_as, [grad], [0, 2, 3], False, ctx.accumulator(grad.dtype), grad.dtype)
    return for_input, for_weight, for_bias


@register(
    aten.convolution_backward.default,
    device="cpu",
    kind=Kind.LIBRARY,
    priority=-1,
    dtypes=("float32", "float64"),
    when=_is_gradient_ours,
)
def call_convolution_backward(
    ctx: ConversionContext, grad: TensorValue, x: TensorValue, weight: TensorValue, bias_sizes: Any, *arguments: Any
) -> Any:
    *layout, groups, _ = arguments
    call = (grad, x, weight, None, *layout, groups, [True, False, False])
    fakes = (ctx.fake[0], None, None)
    backward = aten.convolution_backward.default
    for_input = ctx.extern.call(backward, call, {}, fakes, Kind.LIBRARY, non_aliasing=True)[0]
    _, for_weight, for_bias = generate_convolution_backward(ctx, grad, x, weight, bias_sizes, *arguments)
    return for_input, for_weight, for_bias
