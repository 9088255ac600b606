# SPDX-License-Identifier: Apache-2.0
"""relax.BlockBuilder.call_te loses a size variable that only the computation reads

A tensor expression may use a symbolic size as a number. call_te renames the sizes of its arguments, and one that the
body names itself becomes an undefined variable of the new function. Collect the variables of the body too.
"""

import numpy as np
import tvm
from tvm import relax, te, tirx

builder = relax.BlockBuilder()
n = tirx.Var("n", "int64")
x = relax.Var("x", relax.TensorType((n,), "float32"))
with builder.function("main", [x]):
    y = builder.call_te(lambda a: te.compute(a.shape, lambda i: a[i] / n.astype("float32")), x)
    builder.emit_func_output(y)
print("expected: [0.5, 0.5]", flush=True)
try:
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())
    print("seen:", machine["main"](tvm.runtime.tensor(np.ones(2, "float32"))).numpy().tolist())
except tvm.error.InternalError as error:
    print("seen: InternalError", str(error).strip().splitlines()[-1][-100:])
