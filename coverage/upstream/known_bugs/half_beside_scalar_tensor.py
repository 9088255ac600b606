# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: a 0-d tensor decides the dtype of a sum

A float16 tensor plus a 0-d float32 tensor is float16 in PyTorch, whose 0-d tensors only promote across categories.
`_promote_common_dtype` in base_fx_graph_translator.py takes them for full tensors: half-precision models turn to
float32 half way.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


inputs = (torch.ones(1, dtype=torch.float16), torch.tensor(1.0))
print("expected:", str(Model()(*inputs).dtype).removeprefix("torch."), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().dtype)
