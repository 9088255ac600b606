# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: add, sub and rsub ignore alpha

`torch.add(x, y, alpha=3)` is x + 3 * y; the factor is dropped without a word. The converters in
exported_program_translator.py (add.Tensor, sub.Tensor, rsub) do not read it. Multiply the second operand, or refuse
alpha other than 1.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.add(x, y, alpha=3)


inputs = (torch.ones(1), torch.ones(1))
print("expected:", Model()(*inputs).tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().tolist())
