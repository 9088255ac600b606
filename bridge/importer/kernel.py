# SPDX-License-Identifier: Apache-2.0
"""Tensor expression -> PrimFunc and the call to it.

TVM's own `call_te` renames the size variables of the arguments, so that sizes which a converter closes over are no
longer those of its tensors, and loses variables that occur only in the computation. Here expressions are built over the
graph's own variables, and the finished kernel gets fresh ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tvm_ffi
from tvm import ir, relax, te, tirx
from tvm.relax.op.base import call_tir

from ..attributes import LIBRARY_CALL, OPAQUE
from .compute import layout
from .types import Symbols


class KernelHandle(NamedTuple):
    """A kernel in a module."""

    var: ir.GlobalVar
    sizes: list[tirx.Var]  # that it is given beside its tensors
    result: Any  # the type of its result, or a list of those of its results

    def call(self, tensors: Sequence[relax.Var]) -> relax.Call:
        """The kernel's results for these tensors."""
        return call_tir(self.var, relax.Tuple([*tensors, *self.sizes]), self.result)


def make_kernel(
    builder: relax.BlockBuilder,
    symbols: Symbols,
    function: Callable[..., Any],
    tensors: Sequence[relax.Var],
    args: Sequence[Any],
    name: str,
) -> KernelHandle:
    """Adds the kernel that computes `function(*te_tensors, *args)` to the builder's module.

    `function` returns a te.Tensor or a list of them; sizes inside may use the graph's variables freely.
    """
    placeholders = [
        te.placeholder(list(t.ty.shape.values), dtype=str(t.ty.dtype), name=_name(t.name, i))
        for i, t in enumerate(tensors)
    ]
    result = function(*placeholders, *args)
    outputs = list(result) if isinstance(result, list | tuple) else [result]
    # An output that is an input, or listed twice, is not a kernel's output in TVM: copy it.
    outputs = [layout.identity(o) if _is_taken(o, outputs[:k], placeholders) else o for k, o in enumerate(outputs)]
    operations = _operations(outputs)
    extra = _loose_variables(operations, outputs, placeholders, symbols)
    kernel = te.create_prim_func([*placeholders, *extra, *outputs], index_dtype_override="int64").without_attr(
        "global_symbol"
    )
    if symbols.vars:
        fresh = {var: tirx.Var(var.name, "int64") for var in symbols.vars.values()}
        kernel = tvm_ffi.structural_map(kernel, (tirx.Var, lambda v: fresh.get(v, v)))
    if any(isinstance(op, te.ExternOp) for op in operations):
        kernel = kernel.with_attr("op_pattern", OPAQUE)
    if any(op.attrs and "library" in op.attrs for op in operations):
        kernel = kernel.with_attr(LIBRARY_CALL, True)
    types = [relax.TensorType(list(o.shape), str(o.dtype)) for o in outputs]
    several = isinstance(result, list | tuple) and len(types) > 1
    return KernelHandle(builder.add_func(kernel, re.sub(r"\W+", "_", name)), extra, types if several else types[0])


def _name(hint: str, number: int) -> str:
    return hint if hint.isidentifier() else f"x{number}"


def _is_taken(output: te.Tensor, before: Sequence[te.Tensor], inputs: Sequence[te.Tensor]) -> bool:
    return any(output.same_as(t) for t in (*before, *inputs))


def _operations(outputs: Sequence[te.Tensor]) -> list[Any]:
    """Every operation that the outputs are built on."""
    found: list[Any] = []
    pending = [o.op for o in outputs]
    while pending:
        operation = pending.pop()
        if any(operation.same_as(f) for f in found):
            continue
        found.append(operation)
        pending.extend(t.op for t in operation.input_tensors)
    return found


def _loose_variables(
    operations: Sequence[Any], outputs: Sequence[te.Tensor], inputs: Sequence[te.Tensor], symbols: Symbols
) -> list[tirx.Var]:
    """Size variables that the kernel uses and no input's shape gives: they are passed as numbers."""
    if not symbols.vars:
        return []
    graph_vars = list(symbols.vars.values())
    bound = [d for t in inputs for d in t.shape if isinstance(d, tirx.Var)]
    used: list[Any] = []

    def visit(var: Any) -> None:
        if not any(var.same_as(u) for u in used):
            used.append(var)

    for operation in operations:
        if isinstance(operation, te.PlaceholderOp):
            continue
        parts = list(operation.body) if isinstance(operation, te.ComputeOp) else [operation.body]
        parts += [axis.dom.extent for axis in getattr(operation, "axis", [])]
        parts += [axis.dom.extent for axis in getattr(operation, "reduce_axis", [])]
        for part in parts:
            tvm_ffi.structural_walk(part, (tirx.Var, visit))
    for tensor in (*outputs, *inputs):
        for dim in tensor.shape:
            tvm_ffi.structural_walk(dim, (tirx.Var, visit))
    return [v for v in graph_vars if any(v.same_as(u) for u in used) and not any(v.same_as(b) for b in bound)]
