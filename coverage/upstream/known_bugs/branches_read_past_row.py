# SPDX-License-Identifier: Apache-2.0
"""A vectorised loop with many branches reads past its tensor on llvm

Each branch below reads one row of x for one row of y. TVM turns the vectorised loop into branches, LLVM's loop
vectoriser turns those into masked loads, and takes elements that no branch asked for: sums of foreign memory. Few
branches are right, 18 are not. Seen for znver4 alone (the script needs AVX-512). The target option
"cl-opt": ["-enable-if-conversion:bool=false"] prevents it.
"""

from functools import reduce

import numpy as np
import tvm
from tvm import s_tir, te, tirx

x = te.placeholder((4, 4, 4), "float32", name="x")
zero = tirx.sqrt(tirx.const(0.0, "float32"))
terms = [(1, 3, 0.5), (2, 3, -2.0), (3, 3, 1.5), (0, 0, -1.5), (1, 0, 2.0), (2, 0, -0.5)] * 3


def element(i: tvm.ir.Expr, j: tvm.ir.Expr, k: tvm.ir.Expr) -> tvm.ir.Expr:
    parts = [tirx.if_then_else(tirx.all(j >= a, j < a + 1), x[i, b, k] * f, zero) for a, b, f in terms]
    return reduce(lambda s, part: s + part, parts)


schedule = s_tir.Schedule(te.create_prim_func([x, te.compute((4, 4, 4), element, name="y")]))
schedule.vectorize(schedule.split(schedule.fuse(*schedule.get_loops(schedule.get_sblock("y"))), [None, 16])[1])
seen = tvm.runtime.tensor(np.zeros((4, 4, 4), "float32"))
kernel = tvm.compile(schedule.mod, target={"kind": "llvm", "mcpu": "znver4"})
print("expected:", [sum(f for a, _, f in terms if a == row) for row in range(4)], flush=True)
kernel(tvm.runtime.tensor(np.ones((4, 4, 4), "float32")), seen)
print("seen:", seen.numpy()[3, :, 0].tolist())
