# SPDX-License-Identifier: Apache-2.0
"""CUDA source has float64 constants with 15 decimals

The code generator writes a float64 constant with 15 digits behind the point, whatever its size: 1e-20 becomes 0. The
float32 ones beside it are exact, in hexadecimal. Print them alike.
"""

import re

import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule

x = te.placeholder((256,), "float64", "x")
y = te.compute((256,), lambda i: x[i] * tirx.const(1e-20, "float64"), "y")
schedule = Schedule(te.create_prim_func([x, y]))
(loop,) = schedule.get_loops(schedule.get_sblock("y"))
schedule.bind(loop, "threadIdx.x")
target = tvm.target.Target({"kind": "cuda", "arch": "sm_90", "max_num_threads": 1024}, host="llvm")
source = tvm.compile(schedule.mod, target=target).mod.imports[0].inspect_source()
(constant,) = re.findall(r"\* ([-+.\de]+)\)", source)
print("expected:", 1e-20)
print("seen:", float(constant))
