# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: native_group_norm without weight and bias is a null pointer

Weight and bias are optional. `_native_group_norm` in exported_program_translator.py looks None up in the environment
and passes None on; TVM fails with an internal error in a later pass. Use ones and zeros, as `_native_layer_norm`
does.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.native_group_norm(x, None, None, 1, 2, 2, 1, 0.0)[0]


inputs = (torch.tensor([[[1.0, 3.0], [1.0, 3.0]]]),)
print("expected:", Model()(*inputs).tolist(), flush=True)
try:
    module = from_exported_program(torch.export.export(Model(), inputs))
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    print("seen:", machine["main"](*inputs)[0].numpy().tolist())
except Exception as error:
    print("seen:", type(error).__name__, str(error).strip().splitlines()[-1][:100])
