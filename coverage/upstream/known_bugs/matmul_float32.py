# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: mm, bmm and matmul return float32 whatever they multiply

Products of float64 lose half their digits and products of int64 become floats. exported_program_translator.py builds
these converters with `out_dtype="float32"`; the dtype of the operands is what ATen returns.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, y)


inputs = (torch.full((1, 1), 1 / 3, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))
print("expected:", Model()(*inputs).tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().tolist())
