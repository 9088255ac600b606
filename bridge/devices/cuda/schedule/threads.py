# SPDX-License-Identifier: Apache-2.0
"""How loops are given to blocks and threads."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.error import InternalError
from tvm.s_tir.schedule import ScheduleError

from ....compile.schedule.analysis import Block, contains
from ....compile.schedule.primitives import LoopRV, Schedule

#: Threads of a block over elements that do not depend on each other.
THREADS = 256
#: Lanes of a warp.
WARP = 32
#: Loads and stores of so many bytes at once.
VECTOR_BYTES = 16
#: From so many elements on a thread takes several: below, there would be fewer blocks than multiprocessors.
MANY = 1 << 16


def fused(sch: Schedule, loops: Sequence[LoopRV]) -> LoopRV:
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


def bind_elements(sch: Schedule, loops: Sequence[LoopRV], vector: int = 1) -> None:
    """Each round of the loops to a thread of its own, or `vector` neighbouring ones."""
    loop = fused(sch, loops)
    if vector > 1:
        block, thread, lanes = sch.split(loop, [None, THREADS, vector])
        sch.vectorize(lanes)
    else:
        block, thread = sch.split(loop, [None, THREADS])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")


def vector_of(block: Block) -> int:
    """How many neighbouring elements a thread of an element-wise block takes.

    Several where they are many, all float32, and each is read where it is written or is one number
    for the whole row: then loads and stores are of 16 bytes.
    """
    steps = block.steps
    if steps is None or steps < MANY or block.divisions or block.tests_places:
        return 1
    last = block.node.iter_vars[-1].var
    accesses = [(block.written, block.node.body.indices), *((load.source, load.indices) for load in block.loads)]
    dtypes = {str(buffer.ty.dtype) for buffer, _ in accesses}
    if dtypes != {"float32"} or block.sizes[-1] is None or block.sizes[-1] % 4:
        return 1
    for _, indices in accesses:
        if indices and not (indices[-1].same_as(last) or not any(contains(index, last) for index in indices)):
            return 1
    return VECTOR_BYTES // 4


def threads_for(steps: int | None, most: int = THREADS) -> int:
    """Threads that share a reduction of so many steps, in whole warps: two steps each, where there are enough."""
    if steps is None:
        return most
    threads = WARP
    while threads < most and threads * 2 < steps:
        threads *= 2
    return threads


def can_share(sch: Schedule, loop: LoopRV) -> bool:
    """Whether TVM knows how to combine the partial results of a reduction: asked of a copy, since it says so only when
    the kernel is lowered."""
    try:
        sch.copy().rfactor(loop, 0)
    except (ScheduleError, InternalError):
        return False
    return True
