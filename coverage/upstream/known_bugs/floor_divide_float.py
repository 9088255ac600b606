# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: floor division of floats rounds the quotient first

PyTorch's 1.0 // 0.1 is 9, as Python's: the remainder decides. Relax takes the floor of the rounded quotient, 10.
relax.op.floor_divide for floats; correct it by the remainder.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.floor_divide(x, 0.1)


inputs = (torch.tensor([1.0]),)
print("expected:", Model()(*inputs).tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().tolist())
