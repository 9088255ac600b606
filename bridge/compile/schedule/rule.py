# SPDX-License-Identifier: Apache-2.0
"""The interface of schedule rules, and how a list of them is tried: TVM dlight's, for kernels of any device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import tvm
from tvm import tirx
from tvm.error import InternalError
from tvm.s_tir.schedule import ScheduleError

from ..kernel_pass import kernel_pass
from .analysis import has_root


class Rule(Protocol):
    """A way to schedule one kind of kernel."""

    name: str

    def apply(self, function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
        """The function, scheduled; None where it is no kernel of this kind. Raises what TVM raises where it refuses.

        `function` has a root block. `kernel.analysed(function)` has its blocks, and schedules of them to change.
        """


def apply_rules(function: tirx.PrimFunc, rules: Sequence[Rule], target: tvm.target.Target) -> tirx.PrimFunc:
    """The function as the first rule that takes it schedules it; as it is where it is scheduled already.

    A rule that TVM refuses leaves the function to the next. Raises the last refusal where no rule is left.
    """
    if not has_root(function):
        return function
    refused: Exception | None = None
    for rule in rules:
        try:
            scheduled = rule.apply(function, target)
        except (ScheduleError, InternalError) as error:
            refused = error
        else:
            if scheduled is not None:
                return scheduled
    if refused is not None:
        raise refused
    return function


def schedule_kernels(rules: Sequence[Rule], target: tvm.target.Target) -> Any:
    """The module pass that schedules every kernel for `target` by the first of the rules that takes it."""
    return kernel_pass(
        "ScheduleKernels", lambda kernel: apply_rules(kernel, rules, target).with_attrs(dict(kernel.attrs or {}))
    )
