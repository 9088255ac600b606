# SPDX-License-Identifier: Apache-2.0
"""TVM's target of an NVIDIA GPU, and a tiny kernel for it as source and, with nvcc, as a binary."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from ...device import host
from ...errors import UserError
from .binary import compile_cubin, nvcc

if TYPE_CHECKING:
    from tvm.target import Target

DEFAULT_CUDA_ARCH = "sm_90"  # what `cuda` means on a machine without a GPU, where the module is only compiled


@functools.cache
def cuda_target(name: str, model: str, on: str = "") -> Target:
    """TVM's target of a GPU, beside a host of TVM's kind `on`; beside the host there is, where nothing is said."""
    from tvm.target import Target

    if model and not re.fullmatch(r"sm_\d{2,3}[af]?", model):
        raise UserError(f"target {name!r}: a CUDA model is an architecture such as sm_80, sm_90 or sm_90a")
    arch = model or _this_gpu() or DEFAULT_CUDA_ARCH
    # The limits are those of every architecture since sm_50; without them TVM asks the driver, which may be absent.
    spec = {"kind": "cuda", "arch": arch, "max_num_threads": 1024, "thread_warp_size": 32}
    spec |= {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152, "registers_per_block": 65536}
    return Target(spec, host=on or host().target(host().kind, ""))


def _this_gpu() -> str | None:
    import torch

    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(0)
    return f"sm_{major}{minor}"


def run_probe(target: Target, kernel: Any) -> str:
    """See Device.probe: the kernel's source, and what nvcc makes of it."""
    import tvm
    from tvm.s_tir import Schedule

    schedule = Schedule(kernel)
    (loop,) = schedule.get_loops(schedule.get_sblock("y"))
    block, thread = schedule.split(loop, [None, 128])
    schedule.bind(block, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    built = tvm.compile(schedule.mod, target=target)
    sources = [m.inspect_source() for m in built.mod.imports if m.kind == "cuda"]
    if not sources:
        raise RuntimeError("TVM built a module that holds no CUDA source")
    if nvcc() is None:
        return "CUDA source was generated; no nvcc on PATH to make a binary of it"
    arch = str(target.attrs["arch"])
    binary, _ = compile_cubin("\n".join(sources), arch)
    return f"CUDA source was generated and nvcc made a {arch} binary of {len(binary)} bytes"
