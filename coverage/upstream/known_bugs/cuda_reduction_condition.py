# SPDX-License-Identifier: Apache-2.0
"""A reduction shared by threads races where its condition is on blocks too

The steps of a reduction are split over blocks and threads, and do not divide. LowerCrossThreadReduction then leaves the
loop as it is, without a word: every thread adds to one element in memory, and nothing orders them. It should combine
the threads' results, or refuse.
"""

import tvm
from tvm import te
from tvm.s_tir import Schedule

x = te.placeholder((1000,), "float32", "x")
k = te.reduce_axis((0, 1000), "k")
y = te.compute((), lambda: te.sum(x[k], axis=k), "y")
schedule = Schedule(te.create_prim_func([x, y]))
(loop,) = schedule.get_loops(schedule.get_sblock("y"))
part, _ = schedule.split(loop, [7, None])
partial = schedule.rfactor(part, 0)
block, steps = schedule.get_loops(partial)
schedule.bind(block, "blockIdx.x")
schedule.bind(schedule.split(steps, [None, 32])[1], "threadIdx.x")
(rest,) = schedule.get_loops(schedule.get_sblock("y"))
schedule.bind(rest, "threadIdx.x")
target = tvm.target.Target(
    {"kind": "cuda", "arch": "sm_90", "max_num_threads": 1024, "thread_warp_size": 32}, host="llvm"
)
source = tvm.compile(schedule.mod, target=target).mod.imports[0].inspect_source()
kernel = source[source.rindex("__launch_bounds__(32)") :]
kernel = kernel[: kernel.index("\n}")]
print("expected:", "threads combine their sums")
print(
    "seen:",
    "threads combine their sums" if "__shfl" in kernel or "__shared__" in kernel else "threads overwrite each other's",
)
