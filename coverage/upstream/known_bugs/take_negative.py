# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: take with a negative index reads before the tensor

ATen counts negative indices from the end. `_take` in base_fx_graph_translator.py hands them to relax.op.take, whose
fast mode checks nothing. Add the length to negative indices first.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.take(x, y)


inputs = (torch.tensor([10.0, 20.0, 30.0]), torch.tensor([-1]))
print("expected:", Model()(*inputs).tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().tolist())
