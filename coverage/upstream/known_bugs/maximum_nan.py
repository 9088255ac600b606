# SPDX-License-Identifier: Apache-2.0
"""tirx.max and tirx.min drop NaN

numpy, PyTorch and ONNX define maximum, relu, clamp and max pooling to hand NaN on. Generated code is a comparison and a
select that gives the other operand, so a training run that diverges looks healthy. topi could ask for NaN explicitly.
"""

import numpy as np
import tvm
from tvm import te, topi

a, b = te.placeholder((1,), "float32"), te.placeholder((1,), "float32")
kernel = tvm.compile(te.create_prim_func([a, b, topi.maximum(a, b)]), target="llvm")
values = np.array([np.nan], "float32"), np.array([0.0], "float32")
seen = tvm.runtime.tensor(np.ones(1, "float32"))
kernel(*map(tvm.runtime.tensor, values), seen)
print("expected:", np.maximum(*values).item())
print("seen:", seen.numpy().item())
