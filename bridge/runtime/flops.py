# SPDX-License-Identifier: Apache-2.0
"""Bytes and floating-point operations of a call, told by the shapes of its arguments and results.

Bytes count each argument and result once, as if each crossed memory exactly once: less than what moves where a kernel
reads twice what no cache holds, more where it reads a few rows of a table. Operations are counted for matrix
products, convolutions and attention, with PyTorch's own formulas where it has them; a multiplication and an addition
are two.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import flop_counter

from .. import pytree, torch_api
from ..device import devices
from ..plan import ExternCall, ScalarRef, TensorArg


@functools.cache
def _same_formula() -> dict[Any, Any]:
    same = [pair for device in devices().values() for pair in device.same_flops.items()]
    return {torch_api.packet(op): torch_api.packet(other) for op, other in same}


def bytes_of(value: Any) -> int:
    """Bytes of a tensor of torch or TVM, or of all in nested sequences; 0 for anything else."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return math.prod(shape) * int(dtype.itemsize)
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        return 0
    return sum(bytes_of(item) for item in value)


def product_flops(shapes: Sequence[Sequence[int]]) -> int:
    """Operations of a matrix product called from generated code, from its arguments: left, right, ..., result.

    The operands may be stored transposed. 0 where an operand is part of a larger tensor: its shape does not tell then.
    """
    if len(shapes) < 3:
        return 0
    left, right, result = shapes[0], shapes[1], shapes[-1]
    if len(result) < 2 or not math.prod(result):
        return 0
    *batch, rows, columns = result
    count = math.prod(batch)
    inner, rest = divmod(math.prod(left), count * rows)
    if rest or math.prod(right) != count * inner * columns:
        return 0
    return 2 * count * rows * columns * inner


def extern_flops(call: ExternCall, args: Sequence[Any]) -> int:
    """Operations of a call into ATen with these tensors as arguments; 0 for ops that are no products."""
    packet: Any = getattr(call.target, "overloadpacket", None)
    formula: Any = flop_counter.flop_registry.get(_same_formula().get(packet, packet))
    if formula is None:
        return 0

    def argument(value: Any) -> Any:
        if not isinstance(value, TensorArg):
            return value
        size = tuple(args[value.position].shape) if value.view is None else value.view.size
        return _like(size)

    try:
        leaves, spec = pytree.tree_flatten((call.args, call.kwargs), lambda v: isinstance(v, TensorArg | ScalarRef))
        values, kwargs = pytree.tree_unflatten([argument(leaf) for leaf in leaves], spec)
        results = [None if result is None else _like(result.size) for result in call.results]
        return int(formula(*values, **kwargs, out_val=results[0] if call.single else results))
    except _SymbolicSize:
        return 0


class _SymbolicSize(Exception):
    """A size that is known at run time only."""


def _like(size: Sequence[Any]) -> torch.Tensor:
    if not all(isinstance(n, int) for n in size):
        raise _SymbolicSize
    return torch.empty(tuple(size), device="meta")
