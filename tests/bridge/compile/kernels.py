# SPDX-License-Identifier: Apache-2.0
"""Builds and runs one kernel from a tensor expression, scheduled as the pipeline schedules it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import tvm
from tvm import te, tirx

from relaxgrad.bridge.compile.passes import lowering
from relaxgrad.bridge.compile.schedule import rule
from relaxgrad.bridge.devices.cpu.passes import intrinsics
from relaxgrad.bridge.devices.cpu.passes.selects import keep_selects
from relaxgrad.bridge.devices.cpu.schedule import RULES
from relaxgrad.bridge.targets import resolve_target


def scheduled(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel as the CPU's rules schedule it."""
    return rule.apply_rules(kernel, RULES, resolve_target("llvm"))


def keep_scheduled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The list that gets the TVMScript of every kernel that the pipeline schedules."""
    texts: list[str] = []
    own = rule.apply_rules

    def kept(*given: Any) -> tirx.PrimFunc:
        made = own(*given)
        texts.append(made.script())
        return made

    monkeypatch.setattr(rule, "apply_rules", kept)
    return texts


def build(function: Callable[..., Any], *inputs: torch.Tensor, schedule: bool = True) -> tuple[list[torch.Tensor], Any]:
    """(outputs, scheduled PrimFunc) of `function(*te_tensors)` -> te.Tensor or list of them."""
    placeholders = [
        te.placeholder(tuple(x.shape), dtype=str(x.dtype).removeprefix("torch."), name=f"x{i}")
        for i, x in enumerate(inputs)
    ]
    run, kernel, outputs = _built(function, placeholders, schedule)
    tensors = [torch.full([int(d) for d in o.shape], 77, dtype=getattr(torch, str(o.dtype))) for o in outputs]
    run(*inputs, *tensors)
    return tensors, kernel


def build_symbolic(
    function: Callable[[te.Tensor], te.Tensor], dims: Sequence[str | int], inputs: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], Any]:
    """(the output for each of `inputs`, scheduled PrimFunc) of one kernel whose input has these dims, names symbolic.

    The output has the shape of the input, or that without its last dim.
    """
    names = {d: te.var(d, "int64") for d in dims if isinstance(d, str)}
    placeholder = te.placeholder(tuple(names.get(d, d) for d in dims), dtype="float32", name="x")
    run, kernel, (output,) = _built(function, [placeholder], True)
    results = []
    for x in inputs:
        y = torch.full(x.shape[: len(output.shape)], 77.0)
        run(x, y)
        results.append(y)
    return results, kernel


def _built(function: Callable[..., Any], placeholders: Sequence[Any], schedule: bool) -> tuple[Any, Any, list[Any]]:
    result = function(*placeholders)
    outputs = result if isinstance(result, list) else [result]
    kernel = te.create_prim_func([*placeholders, *outputs], index_dtype_override="int64")
    if schedule:
        kernel = scheduled(kernel)
    with intrinsics.in_use():
        module = intrinsics.link()(keep_selects()(tvm.IRModule({"main": kernel})))
        library = tvm.compile(module, target=resolve_target("llvm"), tir_pipeline=lowering.NAME)
    return library["main"], kernel, outputs
