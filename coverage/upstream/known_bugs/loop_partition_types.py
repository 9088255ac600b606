# SPDX-License-Identifier: Apache-2.0
"""LoopPartition puts an int32 zero in the place of an int64 loop of one step

In a kernel with a symbolic size, static loops are int64 too. Where the rest of a partitioned loop is one step, its
variable is replaced by an int32 zero, `T.Add(0, int64)`, on which a later pass fails a check. The zero should have the
variable's type; `no_unroll_loop_with_extent_one` avoids it.
"""

import tvm
from tvm import s_tir, te
from tvm.error import InternalError

n = te.var("n", "int64")
x = te.placeholder((n, 100), "float32", name="x")
y = te.compute((n, 100), lambda i, j: x[i, j] * 2.0, name="y")
sch = s_tir.Schedule(te.create_prim_func([x, y], index_dtype_override="int64"))
steps, lane = sch.split(sch.get_loops("y")[-1], [None, 16])
sch.vectorize(lane)
sch.annotate(steps, "pragma_loop_partition_hint", 1)
print("expected: a kernel", flush=True)
try:
    tvm.compile(sch.mod, target="llvm")
    print("seen: a kernel")
except (InternalError, TypeError) as error:
    print("seen:", str(error).strip().splitlines()[-1])
