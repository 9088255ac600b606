# SPDX-License-Identifier: Apache-2.0
"""Normalisations that the decomposition table leaves whole: batch norm in eval mode, group norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import te

from ...kinds import ReasonKind
from ..compute import norm
from ..context import ConversionContext
from ..registry import register
from ..types import DTYPES, opmath
from ..values import TensorValue

aten = torch.ops.aten


def _optional(tensors: Sequence[te.Tensor], given: Sequence[bool]) -> list[te.Tensor | None]:
    """The te.Tensors in the places where one is given, None in the others."""
    rest = iter(tensors)
    return [next(rest) if there else None for there in given]


@register(aten._native_batch_norm_legit_no_training.default)
def convert_batch_norm_no_training(
    ctx: ConversionContext,
    x: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    mean: TensorValue,
    variance: TensorValue,
    momentum: float,
    eps: float,
) -> tuple[TensorValue, ...]:
    """(normalised, and two tensors without elements: the CPU kernel saves no statistics in eval mode)."""
    parameters = [weight, bias]
    given = weight is not None, bias is not None
    dtypes = opmath(x.dtype), x.dtype

    def compute(t: te.Tensor, m: te.Tensor, v: te.Tensor, *rest: te.Tensor) -> te.Tensor:
        w, b = _optional(rest, given)
        return norm.batch_norm(t, m, v, w, b, eps, *dtypes)

    out = ctx.compute(compute, [x, mean, variance, *(p for p in parameters if p is not None)])
    return out, ctx.empty(ctx.fake[1]), ctx.empty(ctx.fake[2])


@register(aten.native_group_norm.default)
def convert_group_norm(
    ctx: ConversionContext,
    x: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    batch: Any,
    channels: Any,
    positions: Any,
    groups: int,
    eps: float,
) -> tuple[TensorValue, ...]:
    """(normalised, mean [N, groups], rstd [N, groups])."""
    if not isinstance(channels, int) or any(isinstance(d, int) and d == 0 for d in x.shape):
        raise ctx.refuse(ReasonKind.ARGUMENTS, "a symbolic number of channels, or no elements")
    parameters = [weight, bias]
    given = weight is not None, bias is not None
    dtypes = opmath(x.dtype), ctx.accumulator(x.dtype), x.dtype, DTYPES[ctx.fake[1].dtype]

    def compute(t: te.Tensor, *rest: te.Tensor) -> list[te.Tensor]:
        w, b = _optional(rest, given)
        return norm.group_norm(t, w, b, groups, channels // groups, eps, *dtypes)

    return ctx.compute_many(compute, [x, *(p for p in parameters if p is not None)])
