# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: expm1 is exp(x) - 1

expm1 exists for small x, where the subtraction cancels every digit: expm1(1e-10) becomes 0. The converter in
exported_program_translator.py builds the subtraction. Use a series near zero, or the C library's expm1.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.expm1(x)


inputs = (torch.tensor([1e-10]),)
print("expected:", f"{Model()(*inputs).item():.4g}", flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print(f"seen: {machine['main'](*inputs)[0].numpy().item():.4g}")
