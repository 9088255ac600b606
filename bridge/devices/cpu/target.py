# SPDX-License-Identifier: Apache-2.0
"""TVM's target of a processor: LLVM's name of it, without what a virtual machine hides."""

from __future__ import annotations

import functools
import platform
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from .host import cpuinfo_flags, host_cpu, usable_features

if TYPE_CHECKING:
    from tvm.target import Target

#: LLVM's loop vectoriser, where it turns branches into masks, may take `x[b % 4]` for `x[b]` and read outside of the
#: tensor (found with LLVM 22; tests/bridge/devices/cpu/test_llvm.py has the kernel). Loops without branches keep it.
LLVM_OPTIONS = ["-enable-if-conversion:bool=false"]


@functools.cache
def llvm_target(name: str, model: str) -> Target:
    from tvm.target import Target, codegen

    cpu = host_cpu()
    spec: dict[str, Any] = {"kind": "llvm", "mcpu": model or cpu.name, "num-cores": cpu.cores, "cl-opt": LLVM_OPTIONS}
    if model and not codegen.llvm_is_valid_cpu(model, codegen.llvm_get_system_triple()):
        raise UserError(
            f"target {name!r}: LLVM {codegen.llvm_version_major()} knows no {platform.machine()} CPU named {model!r}; "
            f"this machine's is {cpu.name!r}"
        )
    if not model and cpu.hidden:
        spec["mattr"] = [f"-{feature}" for feature in cpu.hidden]
    return Target(spec)


def lacking(target: Target) -> tuple[str, ...]:
    """The vector features of a target that this machine lacks; none of its own processor's, however it is called."""
    if str(target.attrs["mcpu"]) == host_cpu().name:
        return ()
    from tvm.target import codegen

    return usable_features({str(f) for f in codegen.llvm_get_cpu_features(target)}, cpuinfo_flags())[1]


def run_probe(target: Target, kernel: Any, why_not: str) -> str:
    """See Device.probe. `why_not`: why code for the target does not run here; empty where it does."""
    import torch
    import tvm

    kernel = tvm.compile(kernel, target=target)
    if why_not:
        return f"a kernel compiled; not run: {why_not}"
    x = torch.linspace(-2.0, 2.0, 1024)
    y = torch.full_like(x, float("nan"))
    kernel["main"](x, y)
    if not torch.allclose(y, x * x + 1.0):
        raise RuntimeError("a kernel compiled, ran, and gave wrong values")
    return "a kernel compiled, ran, and gave the right values"
