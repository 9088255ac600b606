# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: div with a rounding mode takes no integers

`torch.div(x, 2, rounding_mode="floor")` of an int64 tensor fails with a TypeError. `_div` in
base_fx_graph_translator.py makes the number a constant of int32 (of float32 for floats) whatever the tensor is. Give
it the tensor's dtype.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.div(x, 2, rounding_mode="floor")


inputs = (torch.tensor([-7]),)
print("expected:", Model()(*inputs).tolist(), flush=True)
try:
    module = from_exported_program(torch.export.export(Model(), inputs))
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    print("seen:", machine["main"](*inputs)[0].numpy().tolist())
except Exception as error:
    print("seen:", type(error).__name__, str(error).strip().splitlines()[-1][:100])
