# SPDX-License-Identifier: Apache-2.0
"""A constant that a Relax function returns is shared with later calls

The caller gets the constant's own memory: writing into a result changes what the next call returns. Copy constants
that are outputs, as relax does for inputs that it may not alias, or say so.
"""

import numpy as np
import tvm
from tvm import relax

builder = relax.BlockBuilder()
with builder.function("main", []):
    builder.emit_func_output(relax.const(np.ones(2, "float32")))
machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())
machine["main"]().copyfrom(np.full(2, 7.0, "float32"))
print("expected: [1.0, 1.0]")
print("seen:", machine["main"]().numpy().tolist())
