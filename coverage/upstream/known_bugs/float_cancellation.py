# SPDX-License-Identifier: Apache-2.0
"""The simplifier takes (x + y) - y to be x for floats

x + 1e8 is a multiple of 8 in float32, so (x + 1e8) - 1e8 is 0 for x = 1: programs round with it, and sum with
compensation. `x - x` becomes 0, which is NaN for NaN and infinity. The cancellation rules of tvm.sym.Analyzer that are
tried for floats; apply them to integers only.
"""

import numpy as np
import tvm
from tvm import te, tirx

a = te.placeholder((2,), "float32")
b = te.compute((2,), lambda i: (a[i] + tirx.const(1e8, "float32")) - tirx.const(1e8, "float32"))
c = te.compute((2,), lambda i: a[i] - a[i])
kernel = tvm.compile(te.create_prim_func([a, b, c]), target="llvm")
seen = [tvm.runtime.tensor(np.ones(2, "float32")) for _ in range(2)]
kernel(tvm.runtime.tensor(np.array([1.0, np.inf], "float32")), *seen)
print("expected:", [0.0, "nan"])
print("seen:", [seen[0].numpy()[0].item(), str(seen[1].numpy()[1].item())])
