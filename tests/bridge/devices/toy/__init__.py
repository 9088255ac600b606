# SPDX-License-Identifier: Apache-2.0
"""A second device, for tests of the seam: the plainest there can be. It takes the place of the processor's.

Loops as TVM makes them from tensor expressions, sums in float64, products of its own (ops/), no BLAS, no vector lanes,
no threads, nothing linked, and TVM's simplest allocator.
"""

from __future__ import annotations

from typing import Any

import torch

from relaxgrad.bridge.device import Device


class Toy(Device):
    name = "cpu"  # torch's: it computes on tensors that tests can make
    kind = "llvm"
    is_host = True
    vm_device = (1, 0, 1)
    listing = suffix = "ll"
    listing_name = "LLVM IR"

    def batch_norm_reserve(self, x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(0, dtype=torch.uint8)

    def target(self, name: str, model: str) -> Any:
        from tvm.target import Target

        return Target({"kind": self.kind})

    def triple(self) -> str:
        from tvm.target import codegen

        return str(codegen.llvm_get_system_triple())

    def can_run(self, target: Any = None) -> tuple[bool, str]:
        return True, "plain loops"

    def generator(self) -> str:
        return "plain loops"


DEVICE = Toy()
