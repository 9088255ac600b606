# SPDX-License-Identifier: Apache-2.0
"""relax.VirtualMachine keeps the results of its last call

The register of the value that a function returned is written by the next call and not before, so the results of a call
outlive every reference of the caller: a step's activations and gradients lie beside those of the next step. Clear the
register when the value has been handed out (src/runtime/vm/vm.cc).
"""

import resource

import numpy as np
import tvm
from tvm import relax

SIZE = 64 * 2**20  # bytes of the result
builder = relax.BlockBuilder()
x = relax.Var("x", relax.TensorType((SIZE // 4,), "float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        y = builder.emit_output(relax.op.exp(x))
    builder.emit_func_output(y)
machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu(), memory_cfg="naive")


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


values = tvm.runtime.tensor(np.ones(SIZE // 4, "float32"))
before = resident()
result = machine["main"](values)
del result
kept = resident() - before
print("expected: nothing kept of a result that was dropped")
print("seen: nothing kept of a result that was dropped" if kept < SIZE // 2 else f"seen: {kept >> 20} MiB kept")
