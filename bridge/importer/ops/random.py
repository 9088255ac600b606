# SPDX-License-Identifier: Apache-2.0
"""Random numbers, drawn from PyTorch's generator: the same seed gives the same masks as eager, bit by bit.

A draw in place (`empty_like(x).bernoulli_(p)`, as dropout does it) fills memory in memory order. Functionalised it is
`bernoulli(empty_like(x), p)`, and PyTorch's functional op fills a contiguous tensor instead: for a permuted `x` the
same numbers would land elsewhere. So these draw into a tensor with the strides of the node's first argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ... import rng
from ...kinds import Kind
from ..context import ConversionContext
from ..registry import overload, register, register_library, registered
from ..values import TensorValue

aten = torch.ops.aten

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
        values = (size, stride, fake.dtype, *args[:-1])
        kwargs = {"generator": generator} if generator is not None else {}
        return ctx.extern.call(_function, values, kwargs, ctx.fake, Kind.LIBRARY, non_aliasing=True, effectful=True)

    register(_op, kind=Kind.LIBRARY)(_convert)


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
