# SPDX-License-Identifier: Apache-2.0
"""Eager's strides for ops whose decomposition or shape function has others.

Note [Strides that eager gives]
Every later stage reads layouts off FakeTensors: views, `as_strided`, outputs. A decomposition is held to its op's
values and not to its strides, and some shape functions are wrong too: `roll` of a channels_last tensor keeps the format
in eager and is contiguous when traced, so that an `as_strided` behind it reads other elements. The graph itself must
therefore have the right layout, and the decomposition table is where it is made: after such an op, a result whose
strides are not eager's is copied into an order that is, by `permute`, `clone`, `permute`. These are ordinary nodes: the
partitioner, the cache and a graph that runs in ATen all see the same, and no side table can get out of step.

Eager's strides follow from one of three rules, or the kernel fills a contiguous tensor:
- an element-wise kernel (TensorIterator) orders the result's dims by the strides of all operands;
- a kernel that copies `self` first keeps the order of a dense `self`;
- a kernel that asks for `suggest_memory_format` (or concatenates slices, which does) gives contiguous or channels_last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import torch_api

aten = torch.ops.aten

#: (the op's arguments) -> an empty tensor with eager's strides (a FakeTensor while tracing), or None: no opinion.
Rule = Callable[..., "torch.Tensor | None"]

_nested = threading.local()


def _elementwise(*args: Any, **kwargs: Any) -> torch.Tensor | None:
    operands = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
    return _iterated(operands)


def _iterated(operands: list[torch.Tensor]) -> torch.Tensor | None:
    """What TensorIterator allocates for `operands`."""
    if not operands or any(t.layout != torch.strided for t in operands):
        return None
    wide = torch.broadcast_tensors(*operands)
    strides = torch_api.elementwise_strides(*wide)
    return torch.empty_strided(wide[0].shape, strides, dtype=torch.bool, device=wide[0].device)


def _addr(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **_: Any) -> torch.Tensor | None:
    """ATen iterates over `self` whatever `beta` is; the decomposition drops it where `beta` is 0."""
    return _iterated([x, a.unsqueeze(1), b.unsqueeze(0)])


def _like_self(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return torch.empty_like(x)


def _rolled(x: torch.Tensor, shifts: Any, dims: Any = ()) -> torch.Tensor | None:
    """ATen concatenates two slices, or rolls the flat tensor where no dims are given."""
    return _suggested(x) if dims else torch.empty_like(x, memory_format=torch.contiguous_format)


def _scalar_power(base: Any, x: torch.Tensor) -> torch.Tensor:
    """The shape function follows `x`, the kernel fills a contiguous tensor."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _ldexp(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor | None:
    """ATen multiplies by a power of a scalar."""
    return _iterated([x, _scalar_power(2, other)])


def _pixel_losses(x: torch.Tensor, target: torch.Tensor, weight: Any, reduction: int, *_: Any) -> torch.Tensor | None:
    return torch.empty_like(target, memory_format=torch.contiguous_format) if reduction == 0 else None


def _suggested(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor | None:
    return torch.empty_like(x, memory_format=torch_api.suggested_format(x))


def _unpooled(x: torch.Tensor, indices: torch.Tensor, size: list[int]) -> torch.Tensor:
    return torch.empty([*x.shape[:-2], *size], dtype=x.dtype, memory_format=torch_api.suggested_format(x))


#: Element-wise ops that carry no tag which says so, or stay whole and have a shape function that is wrong.
_ELEMENTWISE = (
    aten.floor_divide.default, aten.div.Tensor_mode, aten.copysign.Tensor, aten.logical_and.default,
    aten.logical_or.default, aten.logical_xor.default, aten.heaviside.default,
)  # fmt: skip

_RULES: dict[Any, Rule] = {
    aten.addr.default: _addr,
    aten.roll.default: _rolled,
    aten.select_scatter.default: _like_self,
    aten.pow.Scalar: _scalar_power,
    aten.ldexp.Tensor: _ldexp,
    aten.nll_loss2d_forward.default: _pixel_losses,  # its first result
    aten.channel_shuffle.default: _suggested,
    aten.native_channel_shuffle.default: _suggested,
    aten.max_unpool2d.default: _unpooled,
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
}


def with_eager_strides(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """`table` with the ops that have a rule, and every element-wise op in it, wrapped. See Note [Strides that eager
    gives]."""
    rules = {op: _elementwise for op in table if _is_elementwise(op)} | _RULES
    return table | {op: _restrided(op, table.get(op), rule) for op, rule in rules.items()}


def _is_elementwise(op: Any) -> bool:
    if not isinstance(op, torch_api.OpOverload) or torch.Tag.pointwise not in op.tags:
        return False
    if op.overloadpacket is aten.masked_fill:  # a copy of `self`, whatever the order of the mask
        return False
    schema = op._schema
    named = {a.name for a in schema.arguments}
    several = sum(isinstance(a.type, torch.TensorType) for a in schema.arguments) > 1
    return several and not schema.is_mutable and len(schema.returns) == 1 and "memory_format" not in named


def _restrided(op: Any, inner: Callable[..., Any] | None, rule: Rule) -> Callable[..., Any]:
    def decomposition(*args: Any, **kwargs: Any) -> Any:
        running = _running()
        if inner is None and op in running:  # the op itself, recorded whole
            return NotImplemented
        if inner is None:
            running.append(op)
            try:
                found = op(*args, **kwargs)
            finally:
                running.remove(op)
        else:
            found = inner(*args, **kwargs)
        first, *others = found if isinstance(found, tuple) else (found,)
        if not isinstance(first, torch.Tensor) or first.dim() < 2 or not _may_differ(args, kwargs):
            return found
        with torch_api.untraced():
            eager = rule(*args, **kwargs)
        if eager is None:
            return found
        laid_out = _laid_out_as(first, eager)
        return (laid_out, *others) if isinstance(found, tuple) else laid_out

    return decomposition


def _running() -> list[Any]:
    if not hasattr(_nested, "ops"):
        _nested.ops = []
    ops: list[Any] = _nested.ops
    return ops


def _may_differ(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether some operand is not contiguous, or they differ in rank: otherwise every rule says contiguous."""
    tensors = list(_tensors((*args, *kwargs.values())))
    return any(not t.is_contiguous() for t in tensors) or len({t.dim() for t in tensors if t.dim()}) > 1


def _tensors(values: tuple[Any, ...]) -> Iterator[torch.Tensor]:
    return (v for v in values if isinstance(v, torch.Tensor) and v.layout == torch.strided)


def _laid_out_as(found: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
    """`found`, with the strides of `eager` (dense, of the same shape) in every dim that is longer than one."""
    if found.shape != eager.shape:
        return found
    sizes, strides = map(torch_api.hints_of, (eager.shape, eager.stride()))
    now = torch_api.hints_of(found.stride())
    if 0 in sizes or all(a == b for a, b, size in zip(now, strides, sizes, strict=True) if size != 1):
        return found
    order = sorted(range(len(sizes)), key=lambda d: (-strides[d], -sizes[d], d))
    back = [order.index(d) for d in range(len(order))]
    return found.permute(order).clone(memory_format=torch.contiguous_format).permute(back)
