# SPDX-License-Identifier: Apache-2.0
"""A tensor that is not aligned to 64 bytes crashes the process

Generated kernels assume the data alignment of their buffers (64 bytes) and nothing checks it at the call: a view that
starts at element 1 of a tensor segfaults as soon as a loop is vectorised. Check the address in the packed API, as sizes
and strides are checked, or assume the alignment of one element unless the buffer asks for more.
"""

import torch
import tvm
from tvm import s_tir, te

a = te.placeholder((64,), "float32")
schedule = s_tir.Schedule(te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, name="b")]))
schedule.vectorize(schedule.get_loops(schedule.get_sblock("b"))[0])
kernel = tvm.compile(schedule.mod, target="llvm")
views = [torch.ones(65)[1:] for _ in range(2)]
print("expected: all is well, or an exception", flush=True)
try:
    kernel(*views)
    print("seen:", "all is well, or an exception" if (views[1] == 2).all() else views[1].tolist())
except Exception:
    print("seen: all is well, or an exception")
