# SPDX-License-Identifier: Apache-2.0
"""Reductions: to one number, along outer dims, and those that no other rule takes."""

from __future__ import annotations

from ....compile.schedule.analysis import Block
from ....compile.schedule.primitives import Schedule
from .lanes import LANES, is_large, lanes_for, parallelize, reduce_in_lanes, split_lanes


class Numbers:
    """Reductions to one number: vector lanes first, then across them."""

    name = "numbers"

    def apply(self, sch: Schedule, block: Block) -> bool:
        if not block.is_reduction:
            return False
        spatial, _ = block.by_kind(block.sizes)
        if any(size != 1 for size in spatial):
            return False
        partial = reduce_in_lanes(sch, block, len(spatial))
        if partial is None:
            return False
        *steps, lane = list(sch.get_loops(partial))[len(spatial) :]
        sch.vectorize(lane)
        sch.decompose_reduction(partial, steps[0])
        sch.decompose_reduction(block.rv, list(sch.get_loops(block.rv))[-1])
        return True


class Columns:
    """Vector lanes over neighbouring columns, where the reduction reads those."""

    name = "columns"

    def apply(self, sch: Schedule, block: Block) -> bool:
        if not block.is_reduction:
            return False
        spatial, reduced = block.by_kind(block.loops)
        sizes, _ = block.by_kind(block.sizes)
        if spatial and block.reads_columns and lanes_for(block, sizes[-1]) == LANES:
            outer, lanes = split_lanes(sch, spatial[-1], sizes[-1], LANES)
            sch.reorder(*spatial[:-1], outer, *reduced, lanes)
            sch.vectorize(lanes)
            spatial = [*spatial[:-1], outer]
        if block.steps is None:
            spatial = [loop for loop in spatial if not sch.get(loop).annotations]  # no loop that has a rest apart
        if spatial and is_large(block):
            parallelize(sch, spatial, block.steps is None or block.divisions > 0)
        sch.decompose_reduction(block.rv, reduced[0])
        return True
