# SPDX-License-Identifier: Apache-2.0
"""An assert inside a parallel loop is swallowed

With one thread (and for the thread that takes the failing piece) the error code of the parallel body is dropped: the
call returns as if all went well, with the rest of the output unwritten. TVMBackendParallelLaunch's result in the
generated code and in the thread pool; hand the first error on.
"""

import numpy as np
import tvm
from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def kernel(x: T.Buffer((4,), "int32"), y: T.Buffer((4,), "int32")) -> None:  # type: ignore[valid-type]  # TVMScript
    for i in T.parallel(4):
        assert x[i] < 10, "too large"
        y[i] = x[i]


seen = tvm.runtime.tensor(np.zeros(4, "int32"))
print("expected: AssertionError", flush=True)
try:
    tvm.compile(kernel, target="llvm")(tvm.runtime.tensor(np.array([1, 2, 30, 4], "int32")), seen)
    print("seen: no error, and", seen.numpy().tolist())
except AssertionError:
    print("seen: AssertionError")
