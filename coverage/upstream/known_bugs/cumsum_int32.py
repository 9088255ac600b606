# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: cumsum of int32 stays int32 and overflows

PyTorch accumulates cumsum and prod of small integers in int64 and returns int64. `_cumsum` in
base_fx_graph_translator.py passes no dtype on unless the call names one. Default to int64 for integers and bool.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, 0)


inputs = (torch.tensor([2**30, 2**30], dtype=torch.int32),)
print("expected:", Model()(*inputs).tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().tolist())
