# SPDX-License-Identifier: Apache-2.0
"""topi.sum of float16 accumulates in float16

A running float16 sum of ones stops at 2048: the next one is rounded away. Softmax, means and norms of half-precision
models are built on it. numpy and PyTorch accumulate in float32. topi/reduction.h; accumulate wide, cast at the end.
"""

import numpy as np
import tvm
from tvm import te, topi

a = te.placeholder((4096,), "float16")
kernel = tvm.compile(te.create_prim_func([a, topi.sum(a, 0)]), target="llvm")
values = np.ones(4096, "float16")
seen = tvm.runtime.tensor(np.zeros((), "float16"))
kernel(tvm.runtime.tensor(values), seen)
print("expected:", values.sum().item())
print("seen:", seen.numpy().item())
