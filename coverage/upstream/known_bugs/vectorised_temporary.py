# SPDX-License-Identifier: Apache-2.0
"""Lanes of a vectorised loop share one element of a temporary

PlanAndUpdateBufferAllocationLocation sinks the temporary into the vectorised loop and CompactBufferRegion makes it one
element: every lane reads what the last one wrote. Silent. Allocate outside vectorised loops.
"""

import numpy as np
import tvm
from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def kernel(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")) -> None:  # type: ignore[valid-type]  # TVMScript
    t = T.sblock_alloc_buffer((16,), "float32")
    for i in T.vectorized(16):
        with T.sblock("a"):
            v = T.axis.spatial(16, i)
            t[v] = x[v] * T.float32(2)
        with T.sblock("b"):
            w = T.axis.spatial(16, i)
            y[w] = t[w] + T.float32(1)


seen = tvm.runtime.tensor(np.zeros(16, "float32"))
tvm.compile(kernel, target="llvm")(tvm.runtime.tensor(np.arange(16, dtype="float32")), seen)
print("expected: [1.0, 3.0, 5.0]")
print("seen:", seen.numpy()[:3].tolist())
