# SPDX-License-Identifier: Apache-2.0
"""topi.scatter_elements writes out of bounds

An index past the end writes into foreign memory: the heap is damaged, and the process dies later, elsewhere. The
tensor below is the front of a larger one, so that the write is harmless and shows. Check the index, or skip it.
"""

import contextlib

import numpy as np
import tvm
from tvm import te, topi

a, index, update = te.placeholder((4,), "float32"), te.placeholder((1,), "int64"), te.placeholder((1,), "float32")
kernel = tvm.compile(te.create_prim_func([a, index, update, topi.scatter_elements(a, index, update, 0)]), target="llvm")
whole = tvm.runtime.tensor(np.zeros(6, "float32"))
values = np.zeros(4, "float32"), np.array([5]), np.array([666.0], "float32")
print("expected: 0.0 after the tensor", flush=True)
with contextlib.suppress(IndexError):
    kernel(*map(tvm.runtime.tensor, values), whole._create_view((4,)))
print("seen:", whole.numpy()[5].item(), "after the tensor")
