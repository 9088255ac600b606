# SPDX-License-Identifier: Apache-2.0
"""The importer's plans as Python functions, made once when a graph is compiled: what a call does is then only calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..plan import FromConstant, FromFunction, FromInput, FromScalar, OutputPlan, ScalarRef, Strided

Scalars = tuple[Any, ...]

#: (graph inputs, results of the function, values of the symbolic numbers) -> the output.
OutputReader = Callable[[Sequence[Any], Sequence[Any], Scalars], Any]


class OpaqueObject:
    """Carries a value that TVM cannot type through the virtual machine, as an opaque Python object."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


def unwrapped(value: Any) -> Any:
    """What an OpaqueObject holds; anything else as it is."""
    return value.value if isinstance(value, OpaqueObject) else value


def numbers(values: Sequence[Any]) -> Callable[[Scalars], tuple[Any, ...]]:
    """A function from the symbolic numbers to these numbers, some of which are references."""
    if not any(isinstance(v, ScalarRef) for v in values):
        fixed = tuple(values)
        return lambda _: fixed
    parts = ", ".join(f"s[{v.index}]" if isinstance(v, ScalarRef) else repr(v) for v in values)
    function: Callable[[Scalars], tuple[Any, ...]] = eval(f"lambda s: ({parts},)")  # of ints and indices only
    return function


def viewer(view: Strided, *, from_storage: bool = False) -> Callable[[torch.Tensor, Scalars], torch.Tensor]:
    """A function that makes the view of a tensor; the offset counts from the tensor's first element.

    `from_storage`: the tensor is the caller's and may itself start anywhere in its storage.
    """
    rank = len(view.size)
    if not any(isinstance(n, ScalarRef) for n in (*view.size, *view.stride, view.offset)):
        size: Any = view.size
        stride: Any = view.stride
        offset: Any = view.offset
        if from_storage:
            return lambda t, _: t.as_strided(size, stride, offset + t.storage_offset())
        return lambda t, _: t.as_strided(size, stride, offset)
    values = numbers([*view.size, *view.stride, view.offset])

    def make(tensor: torch.Tensor, scalars: Scalars) -> torch.Tensor:
        found = values(scalars)
        start = found[-1] + tensor.storage_offset() if from_storage else found[-1]
        return tensor.as_strided(found[:rank], found[rank:-1], start)

    return make


def output_reader(plan: OutputPlan) -> OutputReader:
    """The function that makes one output."""
    if isinstance(plan, FromConstant):
        value = plan.value
        return lambda inputs, results, scalars: value
    if isinstance(plan, FromScalar):
        scalar = plan.scalar.index
        return lambda inputs, results, scalars: scalars[scalar]
    index = plan.index
    if isinstance(plan, FromInput):
        if plan.view is None:
            return lambda inputs, results, scalars: inputs[index]
        of_input = viewer(plan.view, from_storage=True)
        return lambda inputs, results, scalars: of_input(inputs[index], scalars)
    assert isinstance(plan, FromFunction)
    if plan.opaque:
        return lambda inputs, results, scalars: unwrapped(results[index])
    if plan.view is None:
        return lambda inputs, results, scalars: results[index]
    of_result = _relaid(plan.view) if plan.relayout else viewer(plan.view)
    return lambda inputs, results, scalars: of_result(results[index], scalars)


def _relaid(view: Strided) -> Callable[[torch.Tensor, Scalars], torch.Tensor]:
    """A function that copies a row-major tensor into the layout of `view`; dims of stride 0 keep one element."""
    sizes, strides = numbers(view.size), numbers(view.stride)

    def make(value: torch.Tensor, scalars: Scalars) -> torch.Tensor:
        size, stride = sizes(scalars), strides(scalars)
        narrowed = value
        for dim, step in enumerate(stride):
            if step == 0 and size[dim] > 1:
                narrowed = narrowed.narrow(dim, 0, 1)
        target = torch.empty_strided(narrowed.shape, stride, dtype=value.dtype)
        target.copy_(narrowed)
        return target.as_strided(size, stride)

    return make
