# SPDX-License-Identifier: Apache-2.0
"""A tensor without elements is refused for its strides

torch gives shape (2, 0, 3) the strides (3, 3, 1), TVM expects products of the sizes, (0, 3, 1), and the packed API
raises ValueError, though no element is ever read. Leave the check out where a size is zero.
"""

import torch
import tvm
from tvm import te

a = te.placeholder((2, 0, 3), "float32")
kernel = tvm.compile(te.create_prim_func([a, te.compute((2, 0, 3), lambda *i: a(*i) + 1.0)]), target="llvm")
print("expected: no error", flush=True)
try:
    kernel(torch.zeros(2, 0, 3), torch.zeros(2, 0, 3))
    print("seen: no error")
except ValueError as error:
    print("seen: ValueError", str(error).strip().splitlines()[-1].strip())
