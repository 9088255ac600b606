"""A tensor that is not aligned to 64 bytes crashes the process

Generated kernels assume the data alignment of their buffers (64 bytes) and nothing checks it at the call: a view that
starts at element 1 of a tensor segfaults as soon as a loop is vectorised. Check the address in the packed API, as sizes
and strides are checked, or assume the alignment of one element unless the buffer asks for more.
"""

import numpy as np
import tvm
from tvm import s_tir, te

a = te.placeholder((64,), "float32")
schedule = s_tir.Schedule(te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, name="b")]))
schedule.vectorize(schedule.get_loops(schedule.get_sblock("b"))[0])
kernel = tvm.compile(schedule.mod, target="llvm")
whole = tvm.runtime.tensor(np.ones(65, "float32"))
result = tvm.runtime.tensor(np.zeros(64, "float32"))
print("expected: 128.0 or an exception", flush=True)
try:
    kernel(whole._create_view((64,), "float32", 4), result)
    print("seen: 128.0 or an exception" if result.numpy().sum() == 128 else f"seen: {result.numpy().sum()}")
except Exception:
    print("seen: 128.0 or an exception")
