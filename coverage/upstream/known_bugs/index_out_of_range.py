# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: an index out of range reads foreign memory

x[i] raises IndexError in PyTorch. The compiled module returns whatever lies beyond the tensor, or kills the process.
relax.op.index_tensor (and take, gather_elements, index_put) check nothing. Check the indices, at least behind an
option.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[y]


inputs = (torch.arange(4.0), torch.tensor([100]))
print("expected:", "IndexError", flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
try:
    machine["main"](*inputs)
    print("seen: no error")
except (IndexError, tvm.error.InternalError):
    print("seen: IndexError")
