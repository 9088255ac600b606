# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: the indices of max_pool2d_with_indices are float zeros

The second output should be the int64 position of each maximum; unpooling and the backward read it.
`_max_pool2d_with_indices` in base_fx_graph_translator.py fills it with zeros of the input's dtype. Compute it, or
refuse item 1.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.max_pool2d_with_indices(x, [2, 2])[1]


inputs = (torch.arange(4.0).reshape(1, 1, 2, 2),)
print("expected:", Model()(*inputs).tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().tolist())
