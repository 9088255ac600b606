# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: writes into inputs are dropped from the exported program

`from_exported_program` keeps only outputs of kind USER_OUTPUT; those of kind USER_INPUT_MUTATION and BUFFER_MUTATION
are thrown away, so a counter, a cache or a running mean never changes. The end of `exported_program_translator.py`.
Return them, or refuse the program.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1.0)
        return x * 2.0


inputs = (torch.zeros(1),)
print("expected:", "the input is 1.0 after the call", flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
machine["main"](*inputs)
print("seen: the input is", inputs[0].item(), "after the call")
