# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: randn becomes a constant, the same numbers in every call

Noise is drawn once, when the program is imported, and every call of the compiled module returns it again. `_randn`
and `_randn_like` in exported_program_translator.py call numpy and store the result. Draw in the compiled program, or
refuse.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.randn(1000) * x


inputs = (torch.ones(1000),)
print("expected:", "two calls give other numbers", flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
first, second = (machine["main"](*inputs)[0].numpy() for _ in range(2))
print("seen: two calls", "give other numbers" if (first != second).any() else "give the same numbers")
