"""Schedules every kernel of a module; a kernel that a rule cannot take keeps its naive loops."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from . import cpu


def schedule_kernels(target: tvm.target.Target) -> Any:
    """A module pass for `target`."""

    @tvm.transform.module_pass(opt_level=0, name="ScheduleKernels")
    def apply(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        updated = tvm.IRModule(module.functions, attrs=module.attrs)
        for var, function in module.functions.items():
            if isinstance(function, tirx.PrimFunc):
                updated.update_func(var, cpu.schedule(function).with_attrs(dict(function.attrs or {})))
        return updated

    return apply
