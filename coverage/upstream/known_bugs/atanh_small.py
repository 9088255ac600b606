# SPDX-License-Identifier: Apache-2.0
"""tirx.atanh of a small number loses its digits on llvm

atanh(x) is about x near zero. It is lowered to log((1 + x) / (1 - x)) / 2, where the difference from 1 cancels digits.
The lowering rule of tirx.atanh for llvm; call the C library's atanh, or use a series near zero.
"""

import numpy as np
import tvm
from tvm import te, tirx

a = te.placeholder((1,), "float32")
kernel = tvm.compile(te.create_prim_func([a, te.compute((1,), lambda i: tirx.atanh(a[i]))]), target="llvm")
value = np.array([1e-10], "float32")
seen = tvm.runtime.tensor(np.zeros(1, "float32"))
kernel(tvm.runtime.tensor(value), seen)
print(f"expected: {np.arctanh(value).item():.4g}")
print(f"seen: {seen.numpy().item():.4g}")
