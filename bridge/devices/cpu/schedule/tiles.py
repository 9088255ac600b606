# SPDX-License-Identifier: Apache-2.0
"""Transposes and changes of layout: the output's columns are rows of what it reads."""

from __future__ import annotations

from ....compile.schedule.analysis import Block
from ....compile.schedule.primitives import Schedule
from .lanes import is_large, parallelize

#: Steps of a tile along the dim that an input is contiguous in: a cache line of float32.
TILE = 16


class Tiles:
    """Tiles of the last dim and the one that an input is contiguous in, vector lanes in the last.

    A vector along the last dim reads one element of each of its rows. The next steps read those rows' next elements,
    which lie in the cache lines that the first step fetched.
    """

    name = "tiles"

    def apply(self, sch: Schedule, block: Block) -> bool:
        if block.is_reduction or not block.steps or block.crossing is None:
            return False
        loops, crossing = block.loops, block.crossing
        lanes, steps = (_divisor(block.sizes[d]) for d in (-1, crossing))
        if min(lanes, steps) < 4:
            return False
        columns, inner = sch.split(loops[-1], [None, lanes])
        outer, step = sch.split(loops[crossing], [None, steps])
        around = [*loops[:crossing], outer, *loops[crossing + 1 : -1], columns]
        sch.reorder(*around, step, inner)
        sch.vectorize(inner)
        if is_large(block):
            parallelize(sch, around, block.divisions > 0)
        return True


def _divisor(size: int | None) -> int:
    """The largest size of a tile that divides a dim; 0 for a symbolic one."""
    return next(n for n in range(TILE, 0, -1) if size % n == 0) if size is not None else 0
