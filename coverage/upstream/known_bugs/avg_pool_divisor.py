# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: avg_pool2d ignores divisor_override

The sum is divided by the window's size instead. `_avg_pool2d` in base_fx_graph_translator.py does not read argument 6
(avg_pool3d likewise). Multiply by size / divisor, or refuse.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.avg_pool2d(x, 2, divisor_override=1)


inputs = (torch.arange(4.0).reshape(1, 1, 2, 2),)
print("expected:", Model()(*inputs).tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().tolist())
