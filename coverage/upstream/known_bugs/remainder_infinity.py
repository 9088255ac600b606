# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: remainder by infinity is NaN

torch.remainder(1.0, inf) is 1.0. Relax computes x - floor(x / y) * y, which is 0 * inf. relax.op.floor_mod for
floats; start from fmod and correct the sign.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.remainder(x, float("inf"))


inputs = (torch.tensor([1.0]),)
print("expected:", Model()(*inputs).tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().tolist())
