# SPDX-License-Identifier: Apache-2.0
"""The processor that this process runs on: LLVM's code, the BLAS and the OpenMP threads of torch."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...device import Device, Rewrite
from ...forked import cores
from . import host

if TYPE_CHECKING:
    import torch
    import torch.fx
    from tvm.target import Target


class Cpu(Device):
    name = "cpu"
    kind = "llvm"
    is_host = True
    vm_device = (1, 0, 2)
    listing = suffix = "ll"
    listing_name = "LLVM IR"
    # torch's entry swaps the forward for plain math and hands the attention weights on as `logsumexp`, which the flash
    # backward then reads.
    not_decomposed = ("aten._scaled_dot_product_flash_attention_for_cpu",)
    same_flops = MappingProxyType(
        {
            f"aten._scaled_dot_product_flash_attention_for_cpu{end}": f"aten._scaled_dot_product_flash_attention{end}"
            for end in ("", "_backward")
        }
    )

    def batch_norm_reserve(self, x: torch.Tensor) -> torch.Tensor:
        import torch

        return x.new_empty(0, dtype=torch.uint8)

    def rewrites(self, graph: torch.fx.Graph, leave: Mapping[str, str]) -> dict[torch.fx.Node, Rewrite]:
        from .gemm_sums import rewrites

        return rewrites(graph, leave)

    def tuned(self, module: torch.fx.GraphModule, keeps: bool = True) -> frozenset[int]:
        from .gemm_autotuning import rows_to_generate

        return rows_to_generate(module, keeps)

    def target(self, name: str, model: str) -> Target:
        from .target import llvm_target

        return llvm_target(name, model)

    def passes(self) -> list[Any]:
        from .passes import intrinsics
        from .passes.selects import keep_selects

        return [keep_selects(), intrinsics.link()]

    def rules(self) -> Sequence[Any]:
        from .schedule import RULES

        return RULES

    def lowering(self) -> contextlib.AbstractContextManager[None]:
        from .passes import intrinsics

        return intrinsics.in_use()

    def instructions(self, op: str) -> int:
        from .passes import intrinsics

        return intrinsics.instructions(op)

    def triple(self) -> str:
        from tvm.target import codegen

        return str(codegen.llvm_get_system_triple())

    def objects(self) -> dict[str, bytes]:
        from .openmp_object import object_file

        return {"openmp": object_file()}

    def configure(self) -> None:
        from .malloc import configure_malloc
        from .threads import configure_threads

        configure_threads()
        configure_malloc()

    def configure_thread(self) -> None:
        import torch

        torch.get_num_threads()  # OpenMP counts by thread: has ATen give this one the number that torch is set to

    def before_load(self) -> None:
        from .blas import symbols

        symbols()

    def loaded(self, path: Path) -> None:
        from . import openmp

        openmp.join_openmp(path)

    def fingerprint(self) -> list[Any]:
        from .blas import symbols

        return [sorted(symbols()), platform.system(), host.fingerprint(), cores()]

    def can_run(self, target: Target | None = None) -> tuple[bool, str]:
        cpu = host.host_cpu()
        if target is not None:
            from .target import lacking

            if missing := lacking(target):
                return False, f"this machine's CPU ({cpu.name}) lacks {', '.join(missing)}"
        return True, f"{cpu.name}, {cpu.cores} core{'s' if cpu.cores != 1 else ''}"

    def generator(self) -> str:
        from tvm.target import codegen

        return f"LLVM {codegen.llvm_version_major()}"

    def example(self) -> str:
        return f"llvm, llvm:{host.host_cpu().name}"

    def probe(self, target: Target, kernel: Any) -> str:
        from .target import run_probe

        runs, why = self.can_run(target)
        return run_probe(target, kernel, "" if runs else why)


DEVICE = Cpu()
