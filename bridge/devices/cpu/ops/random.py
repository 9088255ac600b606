# SPDX-License-Identifier: Apache-2.0
"""Masks of many elements, drawn in generated code from the numbers of PyTorch's own generator."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch

from ....importer.context import ConversionContext
from ....importer.registry import Call, register
from ....importer.types import dense_order
from ....importer.values import TensorValue
from ..compute import mersenne

aten = torch.ops.aten

#: From so many draws on the generator's state is worth to be fetched and put back.
MANY = 4096


def _is_many(call: Call) -> bool:
    """Whether these masks are many and row-major, drawn from the default generator."""
    fake, p, generator = call.args
    size: tuple[Any, ...] = tuple(fake.shape)
    if generator is not None or not isinstance(p, int | float) or not 0 <= p <= 1:
        return False
    if all(isinstance(n, int) for n in size) and math.prod(size) < MANY:  # symbolic sizes are taken to be large
        return False
    is_plain = fake.dtype in (torch.bool, torch.float32, torch.float64)
    return is_plain and dense_order(fake) == tuple(range(fake.dim())) and _draws_by_the_twister()


@register(aten.bernoulli.p, device="cpu", when=_is_many)
def generate_bernoulli(ctx: ConversionContext, x: TensorValue, p: float, generator: Any) -> TensorValue:
    state = ctx.extern.generator_state(mersenne.STATE)
    mask, after = ctx.compute_many(mersenne.bernoulli, [state], x.shape, float(p), x.dtype)
    ctx.extern.drew_until(after)
    return mask


@functools.cache
def _draws_by_the_twister() -> bool:
    """Whether this torch, on this CPU, makes its masks of the numbers that mersenne.py takes: builds of it differ."""
    count, p = 1000, 0.3
    before = torch.get_rng_state()
    try:
        state = before.view(torch.int64).numpy()
        if state.size != mersenne.STATE:
            return False
        left, following, words = int(state[1]) & 0xFFFFFFFF, int(state[2]), state[3 : 3 + mersenne.WORDS]
        twister: Any = np.random.MT19937()
        position = mersenne.WORDS if left <= 1 else following
        twister.state = twister.state | {"state": {"key": words.astype(np.uint32), "pos": position}}
        upper, lower = twister.random_raw(2 * count).reshape(count, 2).T
        expected = ((upper & 0x1FFFFF) << 32 | lower) * 2.0**-53 < p
        return bool((torch.empty(count, dtype=torch.bool).bernoulli_(p).numpy() == expected).all())
    finally:
        torch.set_rng_state(before)
