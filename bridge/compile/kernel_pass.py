# SPDX-License-Identifier: Apache-2.0
"""Module passes that change one kernel at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx


def kernel_pass(name: str, change: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> Any:
    """The pass of this name that puts `change(kernel)` in the place of every kernel of a module."""

    @tvm.transform.module_pass(opt_level=0, name=name)
    def apply(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        updated = tvm.IRModule(module.functions, attrs=module.attrs)
        for var, function in module.functions.items():
            if isinstance(function, tirx.PrimFunc):
                updated.update_func(var, change(function))
        return updated

    return apply
