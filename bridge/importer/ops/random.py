"""Random numbers, drawn from PyTorch's generator: the same seed gives the same masks as eager, bit by bit.

A draw in place (`empty_like(x).bernoulli_(p)`, as dropout does it) fills memory in memory order. Functionalised it is
`bernoulli(empty_like(x), p)`, and PyTorch's functional op fills a contiguous tensor instead: for a permuted `x` the
same numbers would land elsewhere. So these draw into a tensor with the strides of the node's first argument.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ... import rng
from ...kinds import Kind
from ..compute import mersenne
from ..context import ConversionContext
from ..registry import overload, register, register_library, registered
from ..types import DTYPES, dense_order
from ..values import TensorValue

aten = torch.ops.aten

#: From so many draws on the generator's state is worth to be fetched and put back.
MANY = 4096


_IN_PLACE = {
    "bernoulli.p": rng.bernoulli_,
    "uniform.default": rng.uniform_,
    "normal_functional.default": rng.normal_,
    "exponential.default": rng.exponential_,
    "geometric.default": rng.geometric_,
    "log_normal.default": rng.log_normal_,
    "cauchy.default": rng.cauchy_,
    "random.default": rng.random_,
    "random.from": rng.random_,
    "random.to": rng.random_,
}

for _name, _function in _IN_PLACE.items():
    if (_op := overload(f"aten.{_name}")) is None:
        continue

    def _convert(ctx: ConversionContext, x: TensorValue, *args: Any, _function: Callable[..., Any] = _function) -> Any:
        fake = ctx.node.args[0].meta["val"]  # type: ignore[union-attr]  # a tensor node
        size, stride = list(fake.shape), list(fake.stride())
        generator = args[-1] if args else None
        if _function is rng.bernoulli_ and _is_ours(fake, args[0], generator):
            return _bernoulli(ctx, size, float(args[0]), fake.dtype)
        values = (size, stride, fake.dtype, *args[:-1])
        kwargs = {"generator": generator} if generator is not None else {}
        return ctx.extern.call(_function, values, kwargs, ctx.fake, Kind.LIBRARY, non_aliasing=True, effectful=True)

    register(_op, kind=Kind.LIBRARY)(_convert)


def _is_ours(fake: torch.Tensor, p: Any, generator: Any) -> bool:
    """Whether generated code draws these masks, many and row-major, from the default generator."""
    size: tuple[Any, ...] = tuple(fake.shape)
    if generator is not None or not isinstance(p, int | float) or not 0 <= p <= 1:
        return False
    if all(isinstance(n, int) for n in size) and math.prod(size) < MANY:  # symbolic sizes are taken to be large
        return False
    is_plain = fake.dtype in (torch.bool, torch.float32, torch.float64) and fake.device.type == "cpu"
    return is_plain and dense_order(fake) == tuple(range(fake.dim())) and _draws_by_the_twister()


def _bernoulli(ctx: ConversionContext, size: list[int], p: float, dtype: torch.dtype) -> TensorValue:
    state = ctx.extern.generator_state()
    mask, after = ctx.compute_many(mersenne.bernoulli, [state], ctx.dims(size), p, DTYPES[dtype])
    ctx.extern.drew_until(after)
    ctx.ran_as = Kind.NATIVE
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


# Everything else that draws is called as it stands. (`dir(aten)` lists only the ops that were used already.)
_AS_THEY_STAND = (
    "_sample_dirichlet", "_standard_gamma", "alpha_dropout", "bernoulli", "binomial", "cauchy", "dropout",
    "exponential",
    "feature_alpha_dropout", "feature_dropout", "geometric", "log_normal", "multinomial", "native_dropout", "normal",
    "normal_functional", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "random",
    "randperm", "rrelu_with_noise_functional", "uniform",
)  # fmt: skip
for _packet in _AS_THEY_STAND:
    for _variant in getattr(getattr(aten, _packet, None), "overloads", list)():
        _op = getattr(getattr(aten, _packet), _variant)
        if torch.Tag.nondeterministic_seeded in _op.tags and not _op._schema.is_mutable and not registered(_op):
            register_library(_op)
