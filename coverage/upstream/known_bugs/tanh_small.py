# SPDX-License-Identifier: Apache-2.0
"""tirx.tanh of a small number loses its digits on llvm

tanh(x) is about x near zero. It is lowered to a quotient of exponentials, where the difference from 1 cancels digits.
The lowering rule of tirx.tanh for llvm; call the C library's tanh, or use a series near zero.
"""

import numpy as np
import tvm
from tvm import te, tirx

a = te.placeholder((1,), "float32")
kernel = tvm.compile(te.create_prim_func([a, te.compute((1,), lambda i: tirx.tanh(a[i]))]), target="llvm")
value = np.array([1e-5], "float32")
seen = tvm.runtime.tensor(np.zeros(1, "float32"))
kernel(tvm.runtime.tensor(value), seen)
print(f"expected: {np.tanh(value).item():.4g}")
print(f"seen: {seen.numpy().item():.4g}")
