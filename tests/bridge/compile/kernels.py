"""Builds and runs one kernel from a tensor expression, scheduled as the pipeline schedules it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import tvm
from tvm import s_tir, te

from relaxgrad.bridge.compile import intrinsics
from relaxgrad.bridge.compile.schedule import cpu
from relaxgrad.bridge.compile.selects import keep_selects
from relaxgrad.bridge.compile.target import resolve_target


def build(function: Callable[..., Any], *inputs: torch.Tensor, schedule: bool = True) -> tuple[list[torch.Tensor], Any]:
    """(outputs, scheduled PrimFunc) of `function(*te_tensors)` -> te.Tensor or list of them."""
    placeholders = [
        te.placeholder(tuple(x.shape), dtype=str(x.dtype).removeprefix("torch."), name=f"x{i}")
        for i, x in enumerate(inputs)
    ]
    result = function(*placeholders)
    outputs = result if isinstance(result, list) else [result]
    kernel = te.create_prim_func([*placeholders, *outputs], index_dtype_override="int64")
    sch = s_tir.Schedule(tvm.IRModule({"main": kernel}))
    if schedule:
        sch = cpu.schedule(sch)
    with intrinsics.in_use():
        library = tvm.compile(intrinsics.link()(keep_selects()(sch.mod)), target=resolve_target("llvm"))
    tensors = [torch.full([int(d) for d in o.shape], 77, dtype=getattr(torch, str(o.dtype))) for o in outputs]
    library["main"](*inputs, *tensors)
    return tensors, sch.mod["main"]
