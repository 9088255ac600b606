# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: exp of an integer tensor is refused

PyTorch's unary float functions promote integers to float32. The converters for sqrt and rsqrt do, those for exp, log,
sin, tanh and others built by `_unary_op` in base_fx_graph_translator.py do not. Promote in `_unary_op`.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x)


inputs = (torch.tensor([0]),)
print("expected:", Model()(*inputs).tolist(), flush=True)
try:
    module = from_exported_program(torch.export.export(Model(), inputs))
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    print("seen:", machine["main"](*inputs)[0].numpy().tolist())
except Exception as error:
    print("seen:", type(error).__name__, str(error).strip().splitlines()[-1][:100])
