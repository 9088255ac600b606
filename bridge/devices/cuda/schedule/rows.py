# SPDX-License-Identifier: Apache-2.0
"""Reductions along the innermost dims and the element-wise work between them: softmax, norms, cross entropy and their
gradients. One block of threads a row, which is read from memory once a stage and kept in shared memory between them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tvm
from tvm import tirx

from ....compile.schedule.analysis import Block, give_loops, product, row_loops, stay_in_rows
from ....compile.schedule.kernel import Inlined, analysed
from ....compile.schedule.loop_fusion import fuse_loops
from ....compile.schedule.primitives import Schedule
from .threads import WARP, bind_elements, can_share, fused, threads_for

#: Bytes of a row's temporaries: the half of what a block may have, so that two blocks fit where they could at all.
SHARED_BYTES = 24 * 1024


class Rows:
    """All blocks under one block of threads a row."""

    name = "rows"

    def apply(self, function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
        known = analysed(function)
        scheduled = _schedule(function, known.with_temporaries)
        if scheduled is None and known.inlined is not known.with_temporaries:
            scheduled = _schedule(function, known.inlined)
        return scheduled


def _schedule(function: tirx.PrimFunc, kernel: Inlined) -> tirx.PrimFunc | None:
    blocks = kernel.after_numbers
    if len(blocks) < 2 or any(b.is_opaque for b in blocks) or not any(b.is_reduction for b in blocks):
        return None
    rows = row_loops(blocks)
    if any(0 in block.sizes for block in blocks):
        return None
    if not rows or not stay_in_rows(blocks, rows):
        return None
    results = set(function.params)
    longest = [product(block.by_kind(block.sizes)[1]) for block in blocks if block.is_reduction]
    if all(steps is not None and steps < WARP for steps in longest):
        return _a_thread_a_row(kernel, rows, results)
    if _shared_bytes(blocks, rows, results) > SHARED_BYTES:
        return None
    steps = [product(block.sizes[rows:]) for block in blocks]
    known = [n for n in steps if n is not None]
    threads = threads_for(max(known) if len(known) == len(steps) else None)
    sch = kernel.schedule()
    read = {load.source for block in blocks for load in block.loads}
    names = kernel.scalar_blocks
    for block in give_loops(sch, kernel.blocks):
        if block.node.name_hint in names:
            bind_elements(sch, block.loops)
            continue
        copy = None
        if block.written not in results:
            sch.set_scope(block.rv, 0, "shared")
        elif block.written in read:  # other threads read it: not before it is in memory that a barrier orders
            copy = Block(sch, sch.cache_write(block.rv, 0, "shared", list(sch.get_consumers(block.rv))))
            block = Block(sch, block.rv)
        if not _bind(sch, block, rows, threads):
            return None
        if copy is not None:
            _bind(sch, Block(sch, copy.rv), rows, threads)
    return fuse_loops(sch.function, 1, names)


def _a_thread_a_row(kernel: Inlined, rows: int, results: set[object]) -> tirx.PrimFunc | None:
    """Short rows: what one block writes for the next stays in a thread."""
    sch = kernel.schedule()
    names = kernel.scalar_blocks
    for block in give_loops(sch, kernel.blocks):
        if block.node.name_hint in names:
            bind_elements(sch, block.loops)
            continue
        spatial, _ = block.by_kind(block.sizes)
        width = product(spatial[rows:])
        if block.written not in results:
            if width is None or width > WARP:
                return None
            sch.set_scope(block.rv, 0, "local")
        inner = block.loops[rows:]
        bind_elements(sch, block.loops[:rows])
        if block.is_reduction:
            sch.decompose_reduction(block.rv, inner[len(spatial) - rows])
    return fuse_loops(sch.function, 2, names)


def _bind(sch: Schedule, block: Block, rows: int, threads: int) -> bool:
    """A block over the threads of a row; False for a reduction whose parts TVM cannot combine."""
    loops = list(block.loops)
    if len(loops) == rows:  # a number a row: one thread
        loops.append(sch.add_unit_loop(block.rv))
        loops = list(sch.get_loops(block.rv))
    inner = fused(sch, loops[rows:])
    if block.is_reduction and not can_share(sch, inner):
        return False
    _, thread = sch.split(inner, [None, threads])
    sch.bind(fused(sch, loops[:rows]), "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return True


def _shared_bytes(blocks: Sequence[Block], rows: int, results: set[object]) -> float:
    """Bytes of shared memory that a row's temporaries take; infinite where a size is symbolic."""
    total: float = 0
    for block in blocks:
        is_read = any(load.source.same_as(block.written) for other in blocks for load in other.loads)
        if block.written in results and not is_read:
            continue
        spatial, _ = block.by_kind(block.sizes)
        count = product(spatial[rows:])
        width = tvm.DataType(str(block.written.ty.dtype)).bits / 8
        total += math.inf if count is None else max(1, count) * max(1, width)
    return total
