# SPDX-License-Identifier: Apache-2.0
"""Element-wise blocks: the inner part in vector lanes, the outer part in parallel."""

from __future__ import annotations

from ....compile.schedule.analysis import Block
from ....compile.schedule.primitives import LoopRV, Schedule
from .lanes import is_large, lanes_for, parallelize, split_lanes, vectorize_elements


class ColumnSteps:
    """A column divided by 2 to 4 is unrolled by as much: LLVM makes vectors of the loop around, whose steps read and
    write neighbours."""

    name = "column steps"

    def apply(self, sch: Schedule, block: Block) -> bool:
        if block.is_reduction or not block.column_step or block.steps == 0:
            return False
        size = block.sizes[-1]
        if lanes_for(block, size) is None if size is None else size % block.column_step:
            return False
        sch.unroll(split_lanes(sch, block.loops[-1], size, block.column_step)[1])
        _outer_in_parallel(sch, block, block.loops[:-1])
        return True


class Lanes:
    """Loops fused, with vector lanes innermost."""

    name = "lanes"

    def apply(self, sch: Schedule, block: Block) -> bool:
        if block.is_reduction:
            return False
        _outer_in_parallel(sch, block, vectorize_elements(sch, block, block.divisions > 0))
        return True


def _outer_in_parallel(sch: Schedule, block: Block, loops: list[LoopRV]) -> None:
    if loops and is_large(block):
        parallelize(sch, loops, block.steps is None or block.divisions > 0)
