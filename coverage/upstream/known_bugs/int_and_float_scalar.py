# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: a float number beside an integer tensor is truncated

`x + 1.5` of an int64 tensor adds 1; so do mul, sub and the comparisons. `_binary_op` in base_fx_graph_translator.py
makes the number a constant of the tensor's dtype. A float number beside integers gives float32 in PyTorch.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1.5


inputs = (torch.tensor([1, 2]),)
print("expected:", Model()(*inputs).tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().tolist())
