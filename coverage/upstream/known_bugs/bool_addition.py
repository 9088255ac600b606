# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: the sum of two bool tensors does not compile

PyTorch's bool + bool is a logical or; cumsum of bool fails the same way. relax.op.add of bool is legalized to an
addition that the LLVM code generator refuses. Map to logical_or, or cast as PyTorch promotes.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


inputs = (torch.tensor([True, False]), torch.tensor([True, False]))
print("expected:", Model()(*inputs).tolist(), flush=True)
try:
    module = from_exported_program(torch.export.export(Model(), inputs))
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    print("seen:", machine["main"](*inputs)[0].numpy().tolist())
except Exception as error:
    print("seen:", type(error).__name__, str(error).strip().splitlines()[-1][:100])
