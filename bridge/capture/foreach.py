# SPDX-License-Identifier: Apache-2.0
"""Decompositions of the `_foreach_*` ops, in which optimizers write a step over all parameters at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


_NAMES = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min", "copy", "cos", "cosh",
    "div", "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "max",
    "maximum", "minimum", "mul", "neg", "norm", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin",
    "sinh", "sqrt", "sub", "tan", "tanh", "trunc", "zero",
)  # fmt: skip

#: `maximum` and `minimum` of a tensor and a number have another name.
_WITH_NUMBERS = {"maximum": aten.clamp_min, "minimum": aten.clamp_max}


def foreach_decompositions() -> dict[Any, Callable[..., Any]]:
    """Every functional `_foreach_x` overload as a list of `x`, one for each tensor of its first list."""
    table: dict[Any, Callable[..., Any]] = {}
    for name in _NAMES:
        packet, single = getattr(aten, f"_foreach_{name}", None), getattr(aten, name)
        for variant in packet.overloads() if packet is not None else ():
            op = getattr(packet, variant)
            if _is_elementwise(op):
                numbers = variant in ("Scalar", "ScalarList")
                other = _WITH_NUMBERS.get(name, single) if numbers else single
                table[op] = _each(other, [a.name for a in op._schema.arguments])
    return table


def _is_elementwise(op: Any) -> bool:
    """Whether it maps lists to one list; the overloads that take their scalars as one tensor do not."""
    schema = op._schema
    lists = any(str(a.type) == "List[Tensor]" for a in schema.arguments)
    tensor_of_scalars = any(a.name == "scalars" and str(a.type) == "Tensor" for a in schema.arguments)
    return lists and not schema.is_mutable and len(schema.returns) == 1 and not tensor_of_scalars


def _each(single: Any, names: list[str]) -> Callable[..., list[torch.Tensor]]:
    by_keyword = "tensor1" in names  # addcmul and addcdiv: their number is a keyword of the single op

    def decomposition(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
        def own(value: Any, i: int) -> Any:
            return value[i] if isinstance(value, list | tuple) else value

        if by_keyword and len(args) > 3:
            kwargs["value"], args = args[3], args[:3]
        count = next(len(a) for a in args if isinstance(a, list | tuple))
        return [single(*(own(a, i) for a in args), **{k: own(v, i) for k, v in kwargs.items()}) for i in range(count)]

    return decomposition
