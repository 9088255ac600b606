# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: log1p is log(1 + x)

log1p exists for small x, where the addition loses every digit: log1p(1e-10) becomes 0. `_log1p` in
base_fx_graph_translator.py builds the sum; tirx.log1p would be right.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log1p(x)


inputs = (torch.tensor([1e-10]),)
print("expected:", f"{Model()(*inputs).item():.4g}", flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print(f"seen: {machine['main'](*inputs)[0].numpy().item():.4g}")
