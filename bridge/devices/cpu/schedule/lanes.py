# SPDX-License-Identifier: Apache-2.0
"""Vector lanes and threads: how many, and where TVM has none."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.error import InternalError
from tvm.s_tir.schedule import ScheduleError

from ....compile.schedule.analysis import Block
from ....compile.schedule.primitives import BlockRV, LoopRV, Schedule

#: Elements of a vector loop; LLVM splits or joins them for the registers that there are.
LANES = 16
#: The annotation by which TVM's LoopPartition gives the elements that vectors leave over a loop of their own. Not for
#: sizes that are known: LLVM then keeps each element of a lane in a register of its own, and no vector is left.
REST_APART = ("pragma_loop_partition_hint", 1)
#: Below this many elements a parallel loop costs more than it gives.
PARALLEL_ELEMENTS = 1 << 13


def lanes_for(block: Block, size: int | None) -> int | None:
    """How many lanes a block's innermost loop of this size gets; None where vectors do not pay.

    LoopPartition takes the tests in an element's expression for tests of the loop's end: it ends the process at some
    branches, and where an element tests its own place (a mask made of positions) its loops write beyond the tensor.
    """
    if size is None:
        return None if "prim.if_then_else" in block.calls or block.tests_places else LANES
    return next((n for n in (LANES, LANES // 2) if size and size % n == 0), None)


def split_lanes(sch: Schedule, loop: LoopRV, size: int | None, lanes: int) -> tuple[LoopRV, LoopRV]:
    """Splits a loop of this size: (steps, lane). Where the size is symbolic, whole vectors come first, then the rest.

    The rest is made by TVM's LoopPartition, which takes the test for the end out of the whole vectors.
    """
    steps, lane = sch.split(loop, [None, lanes])
    if size is None:
        sch.annotate(steps, *REST_APART)
    return steps, lane


def vectorize(sch: Schedule, block: Block, loops: Sequence[LoopRV]) -> None:
    """Vector lanes in the innermost of these loops of a block."""
    if not loops or block.is_one_bfloat16:
        return
    size = block.sizes[-1]
    if (lanes := lanes_for(block, size)) is not None:
        sch.vectorize(split_lanes(sch, loops[-1], size, lanes)[1])


def vectorize_elements(sch: Schedule, block: Block, divided: bool) -> list[LoopRV]:
    """Vector lanes in an element-wise block, over all dims as one where its rows do not fill them.

    Returns the loops around the lanes that can run in parallel. `divided`: see `parallelize`.
    """
    loops, size, elements = block.loops, block.sizes[-1], block.steps
    if size is None or elements is None:  # fusing symbolic loops would cost a division an element
        if not block.column_step:
            vectorize(sch, block, loops)
        return loops[:-1]  # not the columns: LoopPartition takes a parallel loop apart wrongly
    around = loops[:-1]
    if not elements or (size % LANES if divided else elements % LANES):
        return around
    if size % LANES:
        around, loops = [], [sch.fuse(*loops) if len(loops) > 1 else loops[0]]
    steps, lanes = sch.split(loops[-1], [None, LANES])
    sch.vectorize(lanes)
    return [*around, steps]


def reduce_in_lanes(sch: Schedule, block: Block, rows: int) -> BlockRV | None:
    """Splits a reduction into vector lanes and a reduction across them.

    Returns the block of partial results, its loops (rows, reduction, lane); None where the extent is too small or TVM
    does not know the combination to be associative.
    """
    size = block.sizes[-1]
    if size is None:
        lanes = lanes_for(block, size)
    else:
        lanes = next((n for n in (LANES, 8, 4) if size % n == 0 and size > n), None)
    if lanes is None or len(block.node.writes) > 1 or str(block.written.ty.dtype) == "bool":
        return None
    trial = sch.copy()
    try:
        partial = trial.rfactor(split_lanes(trial, block.loops[-1], size, lanes)[1], factor_axis=rows)
    except (ScheduleError, InternalError):  # a combination that TVM does not know to be associative
        return None
    sch.adopt(trial)
    return partial


def is_large(block: Block) -> bool:
    """Whether a block is worth threads; one of unknown size is."""
    return block.steps is None or block.steps >= PARALLEL_ELEMENTS


def parallelize(sch: Schedule, loops: Sequence[LoopRV], divided: bool) -> None:
    """Runs nested loops in parallel: fused into one, or the outermost of them alone.

    `divided`: an index below divides. A fused loop's variables are quotients and remainders of one number, and TVM's
    simplifier takes divisions of those wrong (NESTED_DIVISIONS): windows that overlap read other rows.
    """
    if divided or len(loops) == 1:
        sch.parallel(next((loop for loop in loops if sch.extent(loop) != 1), loops[0]))
    else:
        sch.parallel(sch.fuse(*loops))
