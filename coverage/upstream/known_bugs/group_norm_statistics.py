# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: native_group_norm gives its first output for the mean and the reciprocal deviation too

Outputs 1 and 2 are what the backward reads; they have another shape and other values. `_native_group_norm` in
exported_program_translator.py returns one value, and taking item 1 or 2 of it gives the same again. Compute both, or
refuse the items.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, zero = torch.ones(2), torch.zeros(2)
        return torch.ops.aten.native_group_norm(x, one, zero, 1, 2, 2, 1, 1e-5)[1]


inputs = (torch.tensor([[[1.0, 3.0], [5.0, 7.0]]]),)
print("expected:", Model()(*inputs).tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().tolist())
