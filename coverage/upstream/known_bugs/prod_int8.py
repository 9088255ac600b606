# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: prod of small integers overflows

PyTorch returns int64 for a product of integers; TVM multiplies in int8. `_prod` in base_fx_graph_translator.py passes
no dtype on. Cast integers and bool to int64 first, as for sum.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.prod(x)


inputs = (torch.tensor([100, 100], dtype=torch.int8),)
print("expected:", Model()(*inputs).tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().tolist())
