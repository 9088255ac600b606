# SPDX-License-Identifier: Apache-2.0
"""The simplifier takes x * 0 to be 0 for floats

NaN and infinity times zero are NaN, and -1 times zero is -0. `x - x` and `0 / x` are folded the same way: a kernel
that should hand NaN on gives 0. The rewrite rules of tvm.sym.Analyzer; apply these to integers only.
"""

import numpy as np
import tvm
from tvm import te, tirx

a = te.placeholder((2,), "float32")
b = te.compute((2,), lambda i: a[i] * tirx.const(0.0, "float32"))
kernel = tvm.compile(te.create_prim_func([a, b]), target="llvm")
seen = tvm.runtime.tensor(np.ones(2, "float32"))
kernel(tvm.runtime.tensor(np.array([np.nan, np.inf], "float32")), seen)
print("expected: [nan, nan]")
print("seen:", seen.numpy().tolist())
