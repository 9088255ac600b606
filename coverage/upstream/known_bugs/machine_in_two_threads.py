# SPDX-License-Identifier: Apache-2.0
"""A relax.VirtualMachine called from two threads fails or crashes

The call releases the GIL, and all calls share one stack of frames (src/runtime/vm/vm.cc): two threads overwrite each
other's registers. It ends in "reg < frame->register_file.size()" or in a segmentation fault. A lock per machine, or a
stack per call.
"""

import threading

import numpy as np
import tvm
from tvm import relax

builder = relax.BlockBuilder()
x = relax.Var("x", relax.TensorType((64, 64), "float32"))
with builder.function("main", [x]):
    y = x
    for _ in range(8):
        y = builder.emit(relax.op.add(relax.op.exp(y), x))
    builder.emit_func_output(y)
machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())
a = tvm.runtime.tensor(np.ones((64, 64), "float32"))
print("expected: no error", flush=True)
seen: list[str] = []


def work() -> None:
    try:
        for _ in range(3000):
            machine["main"](a)
    except Exception as error:
        seen.append(type(error).__name__)


threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("seen:", seen[0] if seen else "no error")
