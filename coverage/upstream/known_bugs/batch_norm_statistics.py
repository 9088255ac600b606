# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: outputs 1 to 4 of _native_batch_norm_legit_functional are not what ATen gives

ATen returns the batch's mean and reciprocal deviation and the two new running statistics; TVM gives the new running
mean for output 1 and zeros for the others, so running statistics never move. `_batch_norm_legit_functional` in
exported_program_translator.py.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        op = torch.ops.aten._native_batch_norm_legit_functional
        return torch.stack(op(x, None, None, m, v, True, 0.5, 0.0)[1:])


inputs = (torch.tensor([[1.0], [5.0]]), torch.zeros(1), torch.ones(1))
print("expected:", Model()(*inputs).ravel().tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().ravel().tolist())
