# SPDX-License-Identifier: Apache-2.0
"""relax.op.mean of more than 65504 float16 elements does not compile

The count of elements becomes a float16 constant, which has no such value. Legalisation of relax.mean (topi has no
mean): sum in float32 and divide there, as PyTorch does.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean()


inputs = (torch.ones(70000, dtype=torch.float16),)
print("expected:", Model()(*inputs).tolist(), flush=True)
try:
    module = from_exported_program(torch.export.export(Model(), inputs))
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    print("seen:", machine["main"](*inputs)[0].numpy().tolist())
except Exception as error:
    print("seen:", type(error).__name__, str(error).strip().splitlines()[-1][:100])
