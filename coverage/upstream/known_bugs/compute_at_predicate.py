# SPDX-License-Identifier: Apache-2.0
"""s_tir.Schedule.compute_at drops the predicate of the block it moves

A reduction whose extent the split does not divide has a predicate on its partial results (rfactor). After compute_at
the predicate is gone: elements past the row are added, and the sum is wrong, without a word. Keep the predicate.
"""

import numpy as np
import tvm
from tvm import s_tir, te

a = te.placeholder((2, 10), "float32", name="a")
k = te.reduce_axis((0, 10), "k")
b = te.compute((2,), lambda i: te.sum(a[i, k], k), name="b")
schedule = s_tir.Schedule(te.create_prim_func([a, b]))
block = schedule.get_sblock("b")
_, reduced = schedule.get_loops(block)
partial = schedule.rfactor(schedule.split(reduced, [None, 4])[1], 1)
schedule.compute_at(partial, schedule.get_loops(block)[0])
kernel = tvm.compile(schedule.mod, target="llvm")
seen = tvm.runtime.tensor(np.zeros(2, "float32"))
kernel(tvm.runtime.tensor(np.ones((2, 10), "float32")), seen)
print("expected: 10.0")
print("seen:", seen.numpy()[0].item())
