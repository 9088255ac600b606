"""Schedules every kernel of a module; a kernel that a rule cannot take keeps its naive loops."""

from __future__ import annotations

from typing import Any

import tvm

from ..passes.kernel_pass import kernel_pass
from . import cpu


def schedule_kernels(target: tvm.target.Target) -> Any:
    """A module pass for `target`."""
    return kernel_pass("ScheduleKernels", lambda kernel: cpu.schedule(kernel).with_attrs(dict(kernel.attrs or {})))
