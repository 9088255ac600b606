# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: native_dropout is translated to the identity

Training mode loses its dropout without a word: values are neither dropped nor scaled, and the mask is a copy of the
input. In exported_program_translator.py the converter of native_dropout.default returns its argument. The third
argument says whether it trains: refuse True, or draw a mask.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.native_dropout(x, 0.5, True)[0]


inputs = (torch.ones(1000),)
print("expected:", sorted(set(Model()(*inputs).tolist())), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", sorted(set(machine["main"](*inputs)[0].numpy().tolist())))
