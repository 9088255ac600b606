# SPDX-License-Identifier: Apache-2.0
"""A comparison of two bool values does not compile

`a != b` of bool buffers (exclusive or) becomes a floating-point comparison of i1 in LLVM, which its verifier refuses.
CodeGenLLVM takes the bool code for neither signed nor unsigned integer. Compare as integers.
"""

import tvm
from tvm import te, tirx

a, b = te.placeholder((4,), "bool"), te.placeholder((4,), "bool")
function = te.create_prim_func([a, b, te.compute((4,), lambda i: tirx.NE(a[i], b[i]))])
print("expected: it compiles", flush=True)
try:
    tvm.compile(function, target="llvm")
    print("seen: it compiles")
except tvm.error.InternalError as error:
    print("seen: InternalError", str(error).strip().splitlines()[-2][:80])
