# SPDX-License-Identifier: Apache-2.0
"""Element-wise kernels of one or several results over the same elements: a thread an element, or four of them."""

from __future__ import annotations

import tvm
from tvm import tirx

from ....compile.schedule.analysis import common_loops, give_loops, stay_in_rows
from ....compile.schedule.kernel import analysed
from ....compile.schedule.loop_fusion import fuse_loops
from .threads import bind_elements, vector_of


class SameElements:
    """All blocks in one thread an element; what one writes for the next stays in registers."""

    name = "same elements"

    def apply(self, function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
        kernel = analysed(function).with_temporaries
        blocks = kernel.after_numbers
        if not blocks or any(
            block.is_opaque or block.is_reduction or not block.loops or 0 in block.sizes for block in blocks
        ):
            return None
        rank = len(blocks[0].loops)
        if any(len(b.loops) != rank for b in blocks) or common_loops(blocks) != rank or not stay_in_rows(blocks, rank):
            return None
        sch = kernel.schedule()
        names = {block.node.name_hint for block in blocks}
        results = set(function.params)
        vector = min(map(vector_of, blocks)) if all(block.written in results for block in blocks) else 1
        for block in give_loops(sch, kernel.blocks):
            if block.is_opaque:
                return None
            if block.node.name_hint in names and block.written not in results:
                sch.set_scope(block.rv, 0, "local")
            bind_elements(sch, block.loops, vector if block.node.name_hint in names else 1)
        return fuse_loops(sch.function, 2, kernel.scalar_blocks)
