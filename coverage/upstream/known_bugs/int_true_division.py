# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: division of integers truncates

`7 / 2` of int64 tensors is 3.5 in PyTorch, 3 here. exported_program_translator.py maps div.Tensor to relax.op.divide,
which keeps the dtype. Cast integers to float32 first.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


inputs = (torch.tensor([7]),)
print("expected:", Model()(*inputs).tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().tolist())
