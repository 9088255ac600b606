# SPDX-License-Identifier: Apache-2.0
"""topi.gather reads out of bounds

An index past the end reads the memory that lies there. The tensor below is the front of a larger one, so that the
read is harmless and shows. topi.gather_nd and topi.take's fast mode do the same. Clip, wrap or raise, as numpy can.
"""

import numpy as np
import tvm
from tvm import te, topi

a, index = te.placeholder((4,), "float32"), te.placeholder((1,), "int64")
kernel = tvm.compile(te.create_prim_func([a, index, topi.gather(a, 0, index)]), target="llvm")
whole = tvm.runtime.tensor(np.array([1, 2, 3, 4, 0, 666], "float32"))
seen = tvm.runtime.tensor(np.zeros(1, "float32"))
print("expected: no element 5 of 4")
try:
    kernel(whole._create_view((4,)), tvm.runtime.tensor(np.array([5])), seen)
    print("seen:", "666.0" if seen.numpy().item() == 666 else "no element 5 of 4")
except Exception:
    print("seen: no element 5 of 4")
