# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs: kernels in CUDA source, products, convolutions and attention by ATen."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...device import Device, Usage, host
from ...errors import UserError
from .binary import nvcc

if TYPE_CHECKING:
    import torch
    from tvm.target import Target

#: The environment's variable that has graphs of CUDA tensors compiled.
SWITCH = "RELAXGRAD_CUDA"


class Cuda(Device):
    name = "cuda"
    kind = "cuda"
    vm_device = (2, 0, 2, 1, 0, 2)
    listing = "cuda"
    suffix = "cu"
    listing_name = "CUDA source"

    @property
    def compiles(self) -> bool:
        """Only where it is asked for: no graph has run on a GPU yet (docs/cuda.md)."""
        return os.environ.get(SWITCH, "0") == "1"

    def takes(self, value: torch.Tensor) -> bool:
        return super().takes(value) and not value.device.index  # the machine has one device

    def accumulator(self, dtype: str) -> str:
        """float32 for it and for halves: sums are trees over threads, and float64 is 2 to 64 times as slow."""
        if dtype == "float64":
            return dtype
        return "float32" if dtype.startswith(("float", "bfloat")) else "int64"

    def target(self, name: str, model: str) -> Target:
        from .target import cuda_target

        return cuda_target(name, model)

    def rules(self) -> Sequence[Any]:
        from .schedule import RULES

        return RULES

    def passes(self) -> list[Any]:
        from .passes.bits import exact_bits
        from .passes.loops import check_on_the_device, give_threads

        return [give_threads(), check_on_the_device(), exact_bits()]

    def before_load(self) -> None:
        from ...runtime.virtual_machine import runtime_library

        library = runtime_library("cuda")
        if library is not None:
            ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)

    def of_host_graphs(self) -> Device:
        from .on_host import CudaOnHost

        return CudaOnHost(host())

    def assemble(self, source: str, target: Target) -> tuple[bytes, dict[str, Usage]]:
        from .binary import compile_cubin

        try:
            return compile_cubin(source, str(target.attrs["arch"]))
        except FileNotFoundError as error:
            raise UserError(f"{error}: it makes machine code of CUDA source; leave --source-only on") from None

    def generator(self) -> str:
        compiler = nvcc()
        return (
            f"CUDA source, then {compiler}" if compiler else "CUDA source only: no nvcc on PATH to make a binary of it"
        )

    def example(self) -> str:
        return "cuda, cuda:sm_90"

    def can_run(self, target: Target | None = None) -> tuple[bool, str]:
        import torch
        import tvm

        if not torch.cuda.is_available():
            built = "" if torch.version.cuda else f" (and torch {torch.__version__} is a build without CUDA)"
            return False, f"this machine has no usable NVIDIA GPU{built}"
        if not tvm.cuda(0).exist:
            return False, "torch sees a GPU, but TVM's CUDA runtime does not load"
        major, minor = torch.cuda.get_device_capability(0)
        return True, f"{torch.cuda.get_device_name(0)} (sm_{major}{minor})"

    def probe(self, target: Target, kernel: Any) -> str:
        from .target import run_probe

        return run_probe(target, kernel)


DEVICE = Cuda()
