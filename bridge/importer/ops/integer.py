# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic that takes a loop for each element."""

from __future__ import annotations

import torch

from ..compute import integer, program
from ..context import ConversionContext
from ..registry import register
from ..values import TensorValue
from .pointwise import emit, out_dtype

aten = torch.ops.aten


@register(aten.gcd.default)
def convert_gcd(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> TensorValue:
    return emit(ctx, integer.gcd, [a, b], out_dtype(ctx), kernel=program.elementwise)


@register(aten.lcm.default)
def convert_lcm(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> TensorValue:
    return emit(ctx, integer.lcm, [a, b], out_dtype(ctx), kernel=program.elementwise)
