# SPDX-License-Identifier: Apache-2.0
"""Kernels with several results, all over the same elements: passes/horizontal_fusion.py makes them."""

from __future__ import annotations

import tvm
from tvm import tirx

from ....compile.schedule.analysis import common_loops, stay_in_rows
from ....compile.schedule.kernel import analysed
from ....compile.schedule.loop_fusion import fuse_loops
from .lanes import is_large, parallelize, vectorize_elements


class SameElements:
    """All blocks under the loops around the vector lanes, each with lanes of its own."""

    name = "same elements"

    def apply(self, function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
        kernel = analysed(function).with_temporaries
        blocks = kernel.after_numbers
        if len(kernel.blocks) < 2 or not blocks or not all(block.is_element_wise for block in blocks):
            return None
        rank = len(blocks[0].loops)
        if any(len(b.loops) != rank for b in blocks) or common_loops(blocks) != rank or not stay_in_rows(blocks, rank):
            return None
        sch = kernel.schedule()
        divided = any(block.divisions for block in blocks)
        is_row = divided or blocks[0].steps is None
        depth = 0
        for block in blocks:
            around = vectorize_elements(sch, block, divided)
            depth = len(around)
            if around and is_large(block):
                parallelize(sch, around, is_row)
                depth = depth if is_row else 1
        return fuse_loops(sch.function, depth, kernel.scalar_blocks) if depth else None
