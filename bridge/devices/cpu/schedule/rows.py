# SPDX-License-Identifier: Apache-2.0
"""Reductions along the innermost dims and the element-wise work between them: softmax, layer norm, their backwards."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import tirx

from ....compile.schedule.analysis import Block, give_loops, row_loops, stay_in_rows
from ....compile.schedule.kernel import analysed
from ....compile.schedule.loop_fusion import fuse_loops
from ....compile.schedule.primitives import Schedule
from .lanes import is_large, parallelize, reduce_in_lanes, vectorize


class Rows:
    """All blocks under one loop over the rows, each reduction in vector lanes first and then across them."""

    name = "rows"

    def apply(self, function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
        kernel = analysed(function).with_temporaries
        blocks = kernel.after_numbers
        if not blocks or any(block.is_opaque for block in blocks) or not blocks[0].is_reduction:
            return None
        rows = row_loops(blocks)
        if not rows or not stay_in_rows(blocks, rows):
            return None
        sch = kernel.schedule()
        give_loops(sch, kernel.blocks)
        depth = _each_along_rows(sch, blocks, rows)
        return fuse_loops(sch.function, depth, kernel.scalar_blocks)


def _each_along_rows(sch: Schedule, blocks: Sequence[Block], rows: int) -> int:
    """Schedules each block below its loops over the rows; returns how many those are then."""
    is_parallel = is_large(blocks[0])
    divided = blocks[0].steps is None or any(block.divisions for block in blocks)
    # Vector and parallel loops come before a reduction is decomposed: after that TVM refuses both.
    for block in blocks:
        partial = reduce_in_lanes(sch, block, rows) if block.is_reduction else None
        for part in [block.rv] if partial is None else [partial, block.rv]:
            loops = list(sch.get_loops(part))
            start = loops[rows] if block.is_reduction else None
            if part is partial:
                sch.vectorize(loops[-1])
            elif not block.is_reduction:
                vectorize(sch, block, loops[rows:])
            if is_parallel:
                parallelize(sch, loops[:rows], divided)
            if start is not None:
                sch.decompose_reduction(part, start)
    return 1 if is_parallel and not divided else rows
