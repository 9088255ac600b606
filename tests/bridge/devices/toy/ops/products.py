# SPDX-License-Identifier: Apache-2.0
"""Matrix products as plain loops with sums in float64."""

from __future__ import annotations

from typing import Any

import torch
from tvm import te

from relaxgrad.bridge.importer.context import ConversionContext
from relaxgrad.bridge.importer.registry import Call, register
from relaxgrad.bridge.importer.values import TensorValue

aten = torch.ops.aten


def _has_steps(call: Call) -> bool:
    """Whether a product sums over anything: TVM refuses a reduction over no elements."""
    return bool(call.args[0].shape[-1] != 0)


@register(aten.mm.default, aten.bmm.default, device="cpu", when=_has_steps)
def product(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> TensorValue:
    wide = ctx.device.accumulator(a.dtype)

    def compute(left: Any, right: Any) -> Any:
        *batch, rows, _ = left.shape
        k = te.reduce_axis((0, left.shape[-1]), name="k")

        def element(*at: Any) -> Any:
            *b, i, j = at
            return te.sum(left[*b, i, k].astype(wide) * right[*b, k, j].astype(wide), axis=k)

        total = te.compute((*batch, rows, right.shape[-1]), element, name="total")
        return te.compute(total.shape, lambda *at: total(*at).astype(left.dtype), name="product")

    return ctx.compute(compute, [a, b])
