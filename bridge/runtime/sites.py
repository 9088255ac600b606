"""The Python side of calls into ATen: a function for each call site, and the packed function that TVM calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import tvm_ffi

from .. import torch_api
from ..importer.sites import SITE_FUNCTION
from ..importer.translation import CallSite, ScalarRef, SiteResult, TensorArg
from .plans import Holder, Scalars, held, viewer

SiteFunction = Callable[[tuple[Any, ...], tuple[Any, ...]], Any]


class Frame:
    """One running call of an executable: its site functions and the values of its symbolic numbers."""

    __slots__ = ("error", "scalars", "sites")

    def __init__(self, sites: list[SiteFunction], scalars: tuple[Any, ...]):
        self.sites = sites
        self.scalars = scalars
        self.error: BaseException | None = None


class _Current(threading.local):
    frame: Frame | None = None


current = _Current()


def _dispatch(site: int, *args: Any) -> Any:
    frame = current.frame
    assert frame is not None, "a call site ran outside an executable"
    try:
        return frame.sites[site](args, frame.scalars)
    except BaseException as error:  # kept whole, so that the caller sees the very exception and not TVM's copy
        frame.error = error
        raise


tvm_ffi.register_global_func(SITE_FUNCTION, _dispatch, override=True)


def _reader(arg: TensorArg) -> Callable[[tuple[Any, ...], Scalars], Any]:
    position = arg.position
    if arg.opaque:
        return lambda args, _: held(args[position])
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


def for_vm(tensor: torch.Tensor, order: tuple[int, ...] | None) -> torch.Tensor:
    """A tensor as the machine takes it: dims in memory order (None: as they are), contiguous, not lazily negated."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if order is not None:
        tensor = tensor.permute(order)
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    return _compact(tensor) if tensor.numel() == 0 else tensor


def memory_order(order: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The order to permute to; None where nothing is to be permuted."""
    return None if order is None or order == tuple(range(len(order))) else order


def build_site(site: CallSite) -> SiteFunction:
    """The function behind one call site."""
    leaves, spec = torch_api.tree_flatten((site.args, site.kwargs), lambda a: isinstance(a, TensorArg | ScalarRef))
    readers: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, TensorArg):
            readers.append(_reader(leaf))
        elif isinstance(leaf, ScalarRef):
            readers.append(lambda _, scalars, index=leaf.index: scalars[index])
        else:
            readers.append(lambda _args, _scalars, value=leaf: value)
    target, results, single, fresh = site.target, site.results, site.single, site.fresh

    def run(args: tuple[Any, ...], scalars: tuple[Any, ...]) -> Any:
        values = [read(args, scalars) for read in readers]
        call_args, call_kwargs = spec.unflatten(values)
        returned = target(*call_args, **call_kwargs)
        outputs = [returned] if single else _flat(returned)
        if not fresh:
            outputs = _unshared(outputs, values)
        handed = [
            None if result is None else _hand_over(value, result)
            for value, result in zip(outputs, results, strict=False)
        ]
        return handed[0] if single else handed

    if single and fresh and not site.kwargs and results[0] is not None and not results[0].opaque:
        order = memory_order(results[0].order)
        if isinstance(site.args, tuple) and all(not isinstance(a, list | tuple | dict) for a in site.args):

            def run_simple(args: tuple[Any, ...], scalars: tuple[Any, ...]) -> Any:
                return for_vm(target(*[read(args, scalars) for read in readers]), order)

            return run_simple
    return run


def _flat(returned: Any) -> list[Any]:
    """The leaves of what an op returned, None among them."""
    if any(isinstance(v, list | tuple | dict) for v in returned):
        return torch_api.tree_leaves(returned, lambda v: v is None)
    return list(returned)


def _hand_over(value: Any, result: SiteResult) -> Any:
    return Holder(value) if result.opaque else for_vm(value, memory_order(result.order))


def _unshared(outputs: list[Any], inputs: list[Any]) -> list[Any]:
    """Copies results that share memory with an argument: TVM may reuse an argument's memory after its last reader."""
    taken = {_memory(t) for t in inputs if isinstance(t, torch.Tensor)}
    return [
        o.clone() if isinstance(o, torch.Tensor) and o.layout == torch.strided and _memory(o) in taken else o
        for o in outputs
    ]


def _memory(tensor: torch.Tensor) -> int:
    if tensor.layout != torch.strided:
        return -id(tensor)
    return tensor.untyped_storage().data_ptr() or -id(tensor)
