# SPDX-License-Identifier: Apache-2.0
"""LoopPartition writes behind the tensor where an element compares its place with a constant

Columns of unknown number in steps of 16, with the hint that asks for whole vectors first. `column < 8` in the
expression counts as a test for the loop's end as well: the first step becomes a whole vector whatever the number of
columns is. Of 5 columns, 11 elements behind the tensor are overwritten.
"""

import torch
import tvm
from tvm import s_tir, te, tirx

rows, columns = te.var("rows", "int64"), te.var("columns", "int64")
zero, one = tirx.const(0, "float32"), tirx.const(1, "float32")
mask = te.compute((rows, columns), lambda i, j: tirx.Select(j < 8, one, zero), name="mask")


def behind(hint: bool) -> int:
    """How many elements behind a mask of 21 x 5 its kernel overwrites."""
    sch = s_tir.Schedule(te.create_prim_func([mask], index_dtype_override="int64"))
    steps, lane = sch.split(sch.get_loops("mask")[-1], [None, 16])
    sch.vectorize(lane)
    if hint:
        sch.annotate(steps, "pragma_loop_partition_hint", 1)
    with tvm.transform.PassContext(config={"s_tir.LoopPartition": {"no_unroll_loop_with_extent_one": True}}):
        kernel = tvm.compile(sch.mod, target="llvm")
    memory = torch.full((21 * 5 + 64,), -1.0)
    kernel["main"](memory[: 21 * 5].view(21, 5))
    return int((memory[21 * 5 :] != -1).sum())


print(f"expected: {behind(False)} elements written behind the tensor, as without the hint", flush=True)
print(f"seen: {behind(True)}")
