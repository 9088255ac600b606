# SPDX-License-Identifier: Apache-2.0
"""A sum of columns writes past its result where the columns are fewer than the threads

Columns are split over 32 threads, the rows over others. Where one block has all columns, the condition that a column is
one stands around the loads and no more around the store of the sum: threads without a column write behind the result.
With two blocks the condition is there.
"""

import re

import tvm
from tvm import te
from tvm.s_tir import Schedule

x = te.placeholder((64, 10), "float32", "x")
k = te.reduce_axis((0, 64), "k")
y = te.compute((10,), lambda i: te.sum(x[k, i], axis=k), "y")
schedule = Schedule(te.create_prim_func([x, y]))
columns, rows = schedule.get_loops(schedule.get_sblock("y"))
block, column = schedule.split(columns, [None, 32])
schedule.bind(block, "blockIdx.x")
schedule.bind(column, "threadIdx.x")
schedule.bind(schedule.split(rows, [None, 16])[1], "threadIdx.y")
target = tvm.target.Target(
    {"kind": "cuda", "arch": "sm_90", "max_num_threads": 1024, "thread_warp_size": 32}, host="llvm"
)
source = tvm.compile(schedule.mod, target=target).mod.imports[0].inspect_source()
before = source[: source.rindex("y_ptr[")].rstrip()
condition = re.findall(r"if \((.*)\) \{$", before)
print("expected:", "a store under a condition on threadIdx.x")
print(
    "seen:",
    "a store under a condition on threadIdx.x"
    if condition and "threadIdx.x" in condition[0]
    else "a store under " + (condition[0] if condition else "no condition"),
)
