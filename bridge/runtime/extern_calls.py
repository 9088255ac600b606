# SPDX-License-Identifier: Apache-2.0
"""The Python side of calls into ATen: a function for each extern call, and the packed function that TVM calls.

Note [What a call returns]
The graph was typed by PyTorch's shape functions, and some of these say another thing than the kernel does: bfloat16
batch norm returns its statistics in another dtype, embedding bags leave a helper tensor empty. So each result that is
read is held against its FakeTensor: another dtype is converted, another size is an error that names the op. Without it
generated code would read the memory as what it is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import tvm_ffi

from .. import pytree
from ..errors import RelaxgradError
from ..plan import EXTERN_FUNCTION, ExternCall, ExternResult, ScalarRef, TensorArg
from .plans import OpaqueObject, Scalars, unwrapped, viewer

ExternFunction = Callable[[tuple[Any, ...], tuple[Any, ...]], Any]


class CallContext:
    """One running call of an executable: its functions of extern calls and the values of its symbolic numbers."""

    __slots__ = ("error", "functions", "scalars")

    def __init__(self, functions: list[ExternFunction], scalars: tuple[Any, ...]):
        self.functions = functions
        self.scalars = scalars
        self.error: BaseException | None = None


class _Current(threading.local):
    context: CallContext | None = None


current = _Current()


def _dispatch(number: int, *args: Any) -> Any:
    context = current.context
    assert context is not None, "an extern call ran outside an executable"
    try:
        return context.functions[number](args, context.scalars)
    except BaseException as error:  # kept whole, so that the caller sees the very exception and not TVM's copy
        context.error = error
        raise


tvm_ffi.register_global_func(EXTERN_FUNCTION, _dispatch, override=True)


def _reader(arg: TensorArg) -> Callable[[tuple[Any, ...], Scalars], Any]:
    position = arg.position
    if arg.opaque:
        return lambda args, _: unwrapped(args[position])
    if arg.view is None:
        return lambda args, _: torch.from_dlpack(args[position])
    view = viewer(arg.view)
    return lambda args, scalars: view(torch.from_dlpack(args[position]), scalars)


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without elements with the strides that TVM calls compact (products of the sizes to the right)."""
    strides, step = [], 1
    for size in reversed(tensor.shape):
        strides.append(step)
        step *= size
    return tensor.as_strided(tensor.shape, tuple(reversed(strides)))


#: Whether a tensor that requires gradients crosses to TVM as it is; `detach` takes as long as the crossing.
_TAKES_LEAVES = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


def for_vm(tensor: torch.Tensor, order: tuple[int, ...] | None) -> torch.Tensor:
    """A tensor as the machine takes it: dims in memory order (None: as they are), contiguous, in memory of its own."""
    lies_right = order is None and tensor.is_contiguous() and tensor.numel() > 0
    if lies_right and _TAKES_LEAVES and not (tensor.is_neg() or tensor._is_zerotensor()):
        return tensor
    if tensor.requires_grad:
        tensor = tensor.detach()
    if order is not None:
        tensor = tensor.permute(order)
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor._is_zerotensor():  # no memory at all: torch makes such for gradients that are zero everywhere
        tensor = torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    return _compact(tensor) if tensor.numel() == 0 else tensor


def memory_order(order: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The order to permute to; None where nothing is to be permuted."""
    return None if order is None or order == tuple(range(len(order))) else order


def _maker(value: Any) -> Callable[[tuple[Any, ...], Scalars], Any] | None:
    """The function that makes an argument for a call; None for what is the same in every call.

    A nested argument is taken apart here and not in each call: a tree of arguments costs more than a small convolution.
    """
    if isinstance(value, TensorArg):
        return _reader(value)
    if isinstance(value, ScalarRef):
        index = value.index
        return lambda _, scalars: scalars[index]
    if isinstance(value, dict):
        items = [(key, _maker(item), item) for key, item in value.items()]
        if all(make is None for _, make, _ in items):
            return None
        return lambda args, scalars: {k: item if make is None else make(args, scalars) for k, make, item in items}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        parts = [(_maker(item), item) for item in value]
        if all(make is None for make, _ in parts):
            return None
        kind = type(value)
        return lambda args, scalars: kind([item if make is None else make(args, scalars) for make, item in parts])
    if pytree.tree_leaves(value) != [value]:  # a container of another kind
        leaves, spec = pytree.tree_flatten(value, lambda a: isinstance(a, TensorArg | ScalarRef))
        made = _maker(leaves)
        return None if made is None else lambda args, scalars: spec.unflatten(made(args, scalars))
    return None


def build_call(call: ExternCall) -> ExternFunction:
    """The function behind one extern call."""
    parts = [(_maker(value), value) for value in call.args]
    make_kwargs, fixed_kwargs = _maker(call.kwargs), call.kwargs
    target, results, single, non_aliasing = call.target, call.results, call.single, call.non_aliasing
    hands = [None if result is None else _hand_over(call, result) for result in results]

    def run(args: tuple[Any, ...], scalars: tuple[Any, ...]) -> Any:
        values = [value if make is None else make(args, scalars) for make, value in parts]
        kwargs = fixed_kwargs if make_kwargs is None else make_kwargs(args, scalars)
        returned = target(*values, **kwargs)
        outputs = [returned] if single else _flat(returned)
        if not non_aliasing:
            outputs = _unshared(outputs, pytree.tree_leaves((values, kwargs)))
        handed = [None if hand is None else hand(value, scalars) for value, hand in zip(outputs, hands, strict=False)]
        return handed[0] if single else handed

    hand_over = hands[0] if single and non_aliasing and not call.kwargs else None
    if hand_over is not None:

        def run_simple(args: tuple[Any, ...], scalars: tuple[Any, ...]) -> Any:
            returned = target(*[value if make is None else make(args, scalars) for make, value in parts])
            return hand_over(returned, scalars)

        return run_simple
    return run


def _flat(returned: Any) -> list[Any]:
    """The leaves of what an op returned, None among them."""
    if any(isinstance(v, list | tuple | dict) for v in returned):
        return pytree.tree_leaves(returned, lambda v: v is None)
    return list(returned)


def _hand_over(call: ExternCall, result: ExternResult) -> Callable[[Any, Scalars], Any]:
    """The function that hands one result to the machine: see Note [What a call returns]."""
    if result.opaque:
        return lambda value, _: OpaqueObject(value)
    order, dtype = memory_order(result.order), result.dtype
    symbolic = any(isinstance(s, ScalarRef) for s in result.size)

    def hand(value: torch.Tensor, scalars: Scalars) -> torch.Tensor:
        size: tuple[Any, ...] = result.size
        if symbolic:
            size = tuple(scalars[s.index] if isinstance(s, ScalarRef) else s for s in size)
        if value.shape != size:
            raise RelaxgradError(
                f"{call.target} (node {call.node}) returned a tensor of size {tuple(value.shape)} where its shape "
                f"function says {size}: keep this call out of the compiled graph, with torch.compiler.disable"
            )
        return for_vm(value if value.dtype is dtype else value.to(dtype), order)

    return hand


def _unshared(outputs: list[Any], inputs: list[Any]) -> list[Any]:
    """Copies results that share memory with an argument: TVM may reuse an argument's memory after its last reader."""
    taken = {_memory(t) for t in inputs if isinstance(t, torch.Tensor)}
    return [
        o.clone() if isinstance(o, torch.Tensor) and o.layout == torch.strided and _memory(o) in taken else o
        for o in outputs
    ]


def _memory(tensor: torch.Tensor) -> int:
    if tensor.layout != torch.strided or tensor._is_zerotensor():  # neither has memory of the ordinary kind
        return -id(tensor)
    return tensor.untyped_storage().data_ptr() or -id(tensor)
