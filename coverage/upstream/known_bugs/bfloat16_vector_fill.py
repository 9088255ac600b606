# SPDX-License-Identifier: Apache-2.0
"""A vectorised store of one bfloat16 value to every lane does not compile

Filling or broadcasting a bfloat16 value fails with a TypeError in BF16StorageLegalize: the buffer becomes uint16, the
broadcast stays bfloat16. The same kernel compiles without the vector loop. Legalize Broadcast as scalars are.
"""

import tvm
from tvm import s_tir, te

a = te.placeholder((1,), "bfloat16")
schedule = s_tir.Schedule(te.create_prim_func([a, te.compute((64,), lambda i: a[0], name="b")]))
schedule.vectorize(schedule.get_loops(schedule.get_sblock("b"))[0])
print("expected: it compiles", flush=True)
try:
    tvm.compile(schedule.mod, target="llvm")
    print("seen: it compiles")
except TypeError as error:
    print("seen: TypeError", str(error).split(":")[0])
