"""Reductions to one number."""

from __future__ import annotations

from ....compile.schedule.analysis import Block
from ....compile.schedule.primitives import Schedule
from .lanes import reduce_in_lanes


class Numbers:
    """Vector lanes first, then across them."""

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
