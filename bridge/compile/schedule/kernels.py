"""Schedules every kernel of a module; a kernel that a rule cannot take keeps its naive loops."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx

from . import cpu


def schedule_kernels(target: tvm.target.Target) -> Any:
    """A module pass for `target`."""

    @tvm.transform.module_pass(opt_level=0, name="ScheduleKernels")
    def apply(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        updated = tvm.IRModule(module.functions, attrs=module.attrs)
        for var, function in module.functions.items():
            if isinstance(function, tirx.PrimFunc):
                updated.update_func(var, _schedule(function))
        return updated

    return apply


def _schedule(function: tirx.PrimFunc) -> tirx.PrimFunc:
    schedule = s_tir.Schedule(tvm.IRModule({"main": function}))
    schedule = cpu.schedule(schedule)
    return schedule.mod["main"].with_attrs(dict(function.attrs or {}))
