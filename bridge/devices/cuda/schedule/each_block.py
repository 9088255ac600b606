# SPDX-License-Identifier: Apache-2.0
"""What no rule takes as a whole: each block is a kernel of its own, with its results in memory."""

from __future__ import annotations

import tvm
from tvm import tirx

from ....compile.schedule.analysis import Block, give_loops, product
from ....compile.schedule.kernel import analysed
from ....compile.schedule.primitives import BlockRV, Schedule
from .threads import WARP, bind_elements, can_share, fused, threads_for, vector_of

#: Results from which on each has a thread of its own, if its reduction is short; below, threads share a reduction.
SHORT = 16
#: A reduction of so many steps to few results is done in two kernels.
LONG, FEW, PARTS = 1 << 16, 64, 256
#: Rows that the threads above each other take of a block's 32 columns.
ROWS = 16


class EachBlock:
    """The last rule: it takes every kernel."""

    name = "each block"

    def apply(self, function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
        kernel = analysed(function).inlined
        sch = kernel.schedule()
        for block in give_loops(sch, kernel.blocks):
            if not block.is_opaque:
                _schedule(sch, block)
        return sch.function


def _schedule(sch: Schedule, block: Block) -> None:
    if 0 in block.by_kind(block.sizes)[0]:
        return  # nothing to do; TVM divides by the extents of loops
    if not block.is_reduction:
        bind_elements(sch, block.loops, vector_of(block))
        return
    spatial, reduced = block.by_kind(block.loops)
    spatial_sizes, reduced_sizes = block.by_kind(block.sizes)
    steps = product(reduced_sizes)
    if not spatial:
        spatial = [sch.add_unit_loop(block.rv)]
    sch.reorder(*spatial, *reduced)
    reduction = fused(sch, reduced)
    if (steps is not None and steps < SHORT) or not can_share(sch, reduction):
        bind_elements(sch, spatial)
        sch.decompose_reduction(block.rv, reduction)
    elif block.reads_columns:
        _columns(sch, spatial, reduction, steps)
    else:
        results = product(spatial_sizes)
        parts = _parts(steps) if results is not None and results <= FEW else 1
        if steps is not None and parts > 1:
            outer, _ = sch.split(reduction, [parts, None])
            partial = sch.rfactor(outer, 0)
            _share(sch, partial, threads_for(steps // parts))
            _share(sch, block.rv, threads_for(parts))
            return
        _share(sch, block.rv, threads_for(steps))


def _parts(steps: int | None) -> int:
    """In how many equal parts a reduction goes to blocks of their own; 1: it stays whole.

    Equal, for a condition that is on blocks and on a part's steps at once has TVM lower the part to a loop in which
    threads overwrite each other's sums, without a word.
    """
    if steps is None or steps < LONG:
        return 1
    return next((n for n in range(PARTS, WARP - 1, -1) if steps % n == 0), 1)


def _share(sch: Schedule, rv: BlockRV, threads: int) -> None:
    """A block of threads for each result of a reduction, whose last loop is the reduction."""
    *spatial, reduction = sch.get_loops(rv)
    _, inner = sch.split(reduction, [None, threads])
    sch.bind(fused(sch, spatial), "blockIdx.x")
    sch.bind(inner, "threadIdx.x")


def _columns(sch: Schedule, spatial: list, reduction: object, steps: int | None) -> None:
    """A warp over 32 neighbouring columns, and rows of warps that each take a part of the reduction."""
    rows = ROWS if steps is None else min(ROWS, max(2, 1 << (steps.bit_length() - 1)))
    columns = fused(sch, spatial)
    # Of a split with one block TVM drops the condition that a column is one where the result is written.
    block, column = sch.split(columns, [None, min(WARP, sch.extent(columns) or WARP)])
    _, row = sch.split(reduction, [None, rows])
    sch.bind(block, "blockIdx.x")
    sch.bind(column, "threadIdx.x")
    sch.bind(row, "threadIdx.y")
