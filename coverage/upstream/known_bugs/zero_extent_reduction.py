# SPDX-License-Identifier: Apache-2.0
"""A reduction over nothing leaves its output unwritten

The initial value is stored inside the reduction loop, at its first step; of a loop without steps nothing is left. A sum
over an empty dim gives whatever the memory held (decompose_reduction first gives 0). LowerInitBlock; initialise
outside the loop where its extent may be zero.
"""

import numpy as np
import tvm
from tvm import te, topi

a = te.placeholder((2, 0), "float32")
kernel = tvm.compile(te.create_prim_func([a, topi.sum(a, 1)]), target="llvm")
seen = tvm.runtime.tensor(np.full(2, 77.0, "float32"))
kernel(tvm.runtime.tensor(np.zeros((2, 0), "float32")), seen)
print("expected: [0.0, 0.0]")
print("seen:", seen.numpy().tolist())
