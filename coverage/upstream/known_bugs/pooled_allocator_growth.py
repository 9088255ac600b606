# SPDX-License-Identifier: Apache-2.0
"""relax.VirtualMachine keeps memory for every size it has ever seen

The pooled allocator hands a freed block out again for its own size class alone, so a loop over batch sizes keeps a
pool for each: memory grows until it is full. src/runtime/memory/pooled_allocator.h; free other sizes' blocks when the
pool grows, or hand larger blocks out.
"""

import resource

import numpy as np
import tvm
from tvm import relax, tirx

builder = relax.BlockBuilder()
x = relax.Var("x", relax.TensorType((tirx.Var("n", "int64"), 1000), "float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        y = builder.emit_output(relax.op.sum(relax.op.exp(x)))
    builder.emit_func_output(y)
machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for n in range(1000, 1100):
    machine["main"](tvm.runtime.tensor(np.ones((n, 1000), "float32")))
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024  # KiB on Linux
print("expected: less than 60 MiB kept")  # one call needs 5 MB
print("seen: less than 60 MiB kept" if grown < 60 else f"seen: {grown:.0f} MiB kept")
