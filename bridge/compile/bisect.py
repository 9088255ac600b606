# SPDX-License-Identifier: Apache-2.0
"""After TVM failed to compile a graph: which of its nodes is to blame, so that the others still run on TVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.op.base import call_tir

from ..attributes import OPAQUE, is_kernel_call
from ..errors import last_line
from ..plan import Translation

Compile = Callable[[tvm.IRModule], Any]


def failing_nodes(translation: Translation, compile: Compile) -> dict[str, str]:
    """The nodes whose kernel fails to compile alone, each with the error; empty where every kernel compiles alone.

    Takes some 20 ms a kernel, and is for after a failure only.
    """
    found: dict[str, str] = {}
    main = translation.module["main"]
    symbols = [p for p in main.params if not isinstance(p.ty, relax.TensorType | relax.AnyType)]
    for block in main.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not is_kernel_call(call):
                continue
            nodes = translation.kernels.get(call.args[0].name_hint, set()) - found.keys()
            if not nodes:
                continue
            try:
                compile(_alone(translation.module, call, symbols))
            except Exception as error:  # whatever TVM raises is the finding
                found |= dict.fromkeys(nodes, f"{type(error).__name__}: {last_line(error)}")
    return found


def _alone(module: tvm.IRModule, call: relax.Call, symbols: list[Any]) -> tvm.IRModule:
    """A module whose `main` is this one call."""
    builder = relax.BlockBuilder()
    given = call.args[1].fields
    params = {i: relax.Var(f"x{i}", a.ty) for i, a in enumerate(given) if isinstance(a.ty, relax.TensorType)}
    with builder.function("main", [*symbols, *params.values()]):
        with builder.dataflow():
            kernel = builder.add_func(module[call.args[0]], call.args[0].name_hint)
            arguments = [params.get(i, a) for i, a in enumerate(given)]
            result = builder.emit_output(call_tir(kernel, relax.Tuple(arguments), _results(call)))
        builder.emit_func_output(result)
    return builder.get()


def _results(call: relax.Call) -> Any:
    """The type of a kernel's result, or a list of those of its results."""
    (found,) = call.ty_args
    return list(found.fields) if isinstance(found, relax.TupleType) else found


def unfused(module: tvm.IRModule) -> tvm.IRModule:
    """The module with kernels that are not fused with each other: for a fault of fusion, which no kernel has alone."""
    updated = tvm.IRModule(module.functions, attrs=module.attrs)
    for var, function in module.functions.items():
        if isinstance(function, tirx.PrimFunc):
            updated.update_func(var, function.with_attr("op_pattern", OPAQUE))
    return updated
