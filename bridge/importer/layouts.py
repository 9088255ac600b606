# SPDX-License-Identifier: Apache-2.0
"""Where each value lies in memory, and the check of every result against its FakeTensor.

Note [Storages and strided views]
A tensor that lies in memory as eager's does (graph inputs, results of ATen calls, contiguous native results) is a
storage. A view op's result lies in its input's storage, at the sizes, strides and offset that its FakeTensor has. ATen
calls read a view as a strided view of the storage, and an output that is a view leaves the function as its storage and
is made into a view by the runtime: no kernel, eager's strides, eager's aliasing. Native kernels read the view's own
Relax variable, an index computation that fusion folds into the reader.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from tvm import relax, tirx

from .. import torch_api
from ..kinds import ReasonKind
from .compute import layout
from .context import ConversionContext
from .registry import Refusal
from .types import DTYPES, dense_order, is_empty
from .values import Storage, StridedView, TensorValue, Value
from .views import VIEW_OPS

aten = torch.ops.aten


def checked(ctx: ConversionContext, node: torch.fx.Node, result: Value, consumed: set[int]) -> Value:
    """The contract after every node: the Relax type equals the FakeTensor's. Gives contiguous results a strided."""
    if not isinstance(result, tuple | list):
        return _checked_one(ctx, node, result, ctx.fake)
    results: list[Value] = []
    for number, (value, fake) in enumerate(zip(result, ctx.fake, strict=True)):
        if value is None:
            if number in consumed:
                raise Refusal(ReasonKind.OUTPUT, f"output {number} is not computed")
            results.append(None)
        else:
            results.append(_checked_one(ctx, node, value, fake))
    return tuple(results)


def _checked_one(ctx: ConversionContext, node: torch.fx.Node, value: TensorValue, fake: torch.Tensor) -> TensorValue:
    expected = ctx.whole_graph_dims(fake.shape)
    ty = value.var.ty
    shape = list(ty.shape.values) if ty.shape is not None else []
    if value.dtype != DTYPES[fake.dtype] or str(ty.dtype) != DTYPES[fake.dtype]:
        raise Refusal(ReasonKind.TYPE_CHECK, f"dtype {ty.dtype} instead of {DTYPES[fake.dtype]}")
    if len(shape) != len(expected) or not all(map(ctx.symbols.equal, shape, expected)):
        raise Refusal(ReasonKind.TYPE_CHECK, f"shape {list(map(str, shape))} instead of {list(map(str, expected))}")
    strided = None
    order = None if node.target in VIEW_OPS or is_empty(expected) else dense_order(fake)
    if order == tuple(range(fake.dim())):
        strided = StridedView(
            Storage(value.var, fake.storage_offset()), tuple(fake.shape), tuple(fake.stride()), 0, whole=True
        )
    elif order is not None:  # laid out for an output that it is, or that is a view of it
        laid_out = functools.cache(functools.partial(_laid_out, ctx, node, value.var, order))
        storage = Storage(laid_out, fake.storage_offset(), dense=False)
        strided = StridedView(storage, tuple(fake.shape), tuple(fake.stride()), 0)
    return TensorValue(value.var, expected, value.dtype, strided)


def _laid_out(ctx: ConversionContext, node: torch.fx.Node, var: relax.Var, order: Sequence[int]) -> relax.Var:
    return ctx.emit(layout.permute, [var], order, name=f"{node.name}_laid_out")


def view(ctx: ConversionContext, node: torch.fx.Node, convert: Callable[..., Value], args: list[Any]) -> Value:
    """The result of a view op, which `convert` computes: see Note [Storages and strided views]."""
    source = args[0]
    fakes = ctx.fake if isinstance(ctx.fake, list | tuple) else [ctx.fake]
    base = node.args[0].meta["val"]  # type: ignore[union-attr]  # the first argument of a view op is a tensor node
    strided = source.strided
    shares = all(torch_api.same_storage(f, base) for f in fakes)
    empty = [is_empty(ctx.whole_graph_dims(f.shape)) for f in fakes]
    if all(empty) or is_empty(source.shape):
        results = [ctx.empty(f) for f in fakes]
        return tuple(results) if isinstance(ctx.fake, list | tuple) else results[0]
    if strided is not None and node.target is aten.as_strided.default and _leaves(fakes[0], strided.storage):
        raise ctx.cannot("as_strided reads what lies outside of its tensor", node, ReasonKind.ARGUMENTS)
    if strided is None or not shares:
        return checked(ctx, node, convert(ctx, *args), set(range(len(fakes))))
    made: list[Any] = []

    def results_of() -> list[Any]:
        if not made:
            previous, ctx.node = ctx.node, node
            result = checked(ctx, node, convert(ctx, *args), set(range(len(fakes))))
            made.extend(result if isinstance(result, tuple) else (result,))
            ctx.node = previous
        return made

    def lazy(number: int) -> Callable[[], relax.Var]:
        return lambda: results_of()[number].var

    values = tuple(
        ctx.empty(f)
        if empty[i]
        else TensorValue(lazy(i), ctx.whole_graph_dims(f.shape), DTYPES[f.dtype], _strided_view(f, strided.storage))
        for i, f in enumerate(fakes)
    )
    return values if isinstance(ctx.fake, list | tuple) else values[0]


def _leaves(fake: torch.Tensor, storage: Storage) -> bool:
    """Whether a strided view of static sizes has elements that its storage has not."""
    first = fake.storage_offset() - storage.offset
    last = first + sum((n - 1) * s for n, s in zip(fake.shape, fake.stride(), strict=True))
    count = math.prod(int(n) if isinstance(n, int | tirx.IntImm) else -1 for n in storage.var.ty.shape.values)
    if not isinstance(first, int) or not isinstance(last, int) or count < 0:
        return False
    return first < 0 or last >= count


def _strided_view(fake: torch.Tensor, storage: Storage) -> StridedView:
    return StridedView(storage, tuple(fake.shape), tuple(fake.stride()), fake.storage_offset() - storage.offset)
