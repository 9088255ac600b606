# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: elu ignores scale and input_scale, so selu is wrong

aten.elu(x, alpha, scale, input_scale) with a scale is what selu decomposes to; the converter `_elu` in
base_fx_graph_translator.py reads alpha alone. Values are off by the factor 1.0507. Multiply by both scales.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.selu(x)


inputs = (torch.tensor([1.0]),)
print("expected:", Model()(*inputs).tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().tolist())
