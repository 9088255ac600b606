# SPDX-License-Identifier: Apache-2.0
"""The simplifier takes not (x < y) to be y <= x for floats

With NaN both comparisons are false, so the negation of one is not the other: `not (nan < 0)` gives false. The rule for
negated comparisons in tvm.sym.Analyzer; apply it to integers only.
"""

import numpy as np
import tvm
from tvm import te, tirx

a = te.placeholder((1,), "float32")
b = te.compute((1,), lambda i: tirx.Not(a[i] < tirx.const(0.0, "float32")).astype("int32"))
kernel = tvm.compile(te.create_prim_func([a, b]), target="llvm")
seen = tvm.runtime.tensor(np.zeros(1, "int32"))
kernel(tvm.runtime.tensor(np.array([np.nan], "float32")), seen)
print("expected: 1")
print("seen:", seen.numpy().item())
