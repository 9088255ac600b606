# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: bernoulli.p is translated to the identity

A random draw of zeros and ones becomes its input. The converter in exported_program_translator.py takes every
bernoulli for a dropout that is off; the op does not read the values of its input at all. Refuse it until it is drawn.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.bernoulli.p(x, 0.5)


inputs = (torch.full((1000,), 7.0),)
print("expected:", sorted(set(Model()(*inputs).tolist())), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", sorted(set(machine["main"](*inputs)[0].numpy().tolist())))
