# SPDX-License-Identifier: Apache-2.0
"""relax.match_cast to a size that is already known checks nothing

match_cast is said to raise where the value does not match. For a size variable bound before (by x) the check of
y's size is left out: kernels that trust the type read out of bounds. VMShapeLower; compare with the stored value.
"""

import numpy as np
import tvm
from tvm import relax, tirx

n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
x, y = relax.Var("x", relax.TensorType((n,), "float32")), relax.Var("y", relax.TensorType((m,), "float32"))
builder = relax.BlockBuilder()
with builder.function("main", [x, y]):
    builder.emit_func_output(relax.Tuple([x, builder.match_cast(y, relax.TensorType((n,), "float32"))]))
machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())
print("expected: an exception", flush=True)
try:
    result = machine["main"](*(tvm.runtime.tensor(np.ones(size, "float32")) for size in (3, 2)))
    print("seen: sizes", *(part.shape for part in result))
except Exception:
    print("seen: an exception")
