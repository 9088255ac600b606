# SPDX-License-Identifier: Apache-2.0
"""relax.frontend.torch: grid_sample reads the grid in another layout and returns another shape

torch's grid has the coordinates last, (N, H, W, 2); relax.op.image.grid_sample has them second, (N, 2, H, W).
`_grid_sampler_2d` in exported_program_translator.py passes the grid on unchanged. Permute it.
"""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grid_sample(x, y, align_corners=False)


inputs = (torch.arange(4.0).reshape(1, 1, 2, 2), torch.zeros(1, 1, 1, 2))
print("expected:", Model()(*inputs).tolist(), flush=True)
module = from_exported_program(torch.export.export(Model(), inputs))
machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
print("seen:", machine["main"](*inputs)[0].numpy().tolist())
