# SPDX-License-Identifier: Apache-2.0
"""topi.argmax and topi.max skip NaN

numpy and PyTorch take NaN for the largest value: argmax is its position. topi's comparisons are false for NaN, so the
reduction never picks it (where it comes first it may stay). topi/reduction.h; compare with NaN in mind.
"""

import numpy as np
import tvm
from tvm import te, topi

a = te.placeholder((3,), "float32")
kernel = tvm.compile(te.create_prim_func([a, topi.argmax(a, 0)]), target="llvm")
values = np.array([1.0, np.nan, 3.0], "float32")
seen = tvm.runtime.tensor(np.zeros((), "int32"))
kernel(tvm.runtime.tensor(values), seen)
print("expected:", values.argmax())
print("seen:", seen.numpy().item())
