"""CPU schedules.

Every block is inlined into its reader where it is element-wise, loops that are left are fused, the outer part runs in
parallel and the inner part in vector lanes. A reduction is always decomposed into its start value and its update: without
that a reduction over zero elements would leave its output unwritten.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.schedule import ScheduleError

#: float32 lanes of a vector loop; LLVM splits or joins them for the registers that there are.
LANES = 16
#: Below this many elements a parallel loop costs more than it gives.
PARALLEL_ELEMENTS = 1 << 15


def schedule(sch: s_tir.Schedule) -> None:
    """Schedules the function `main` of `sch` in place."""
    if not _has_root(sch):
        return
    root = sch.get_sblock("root")
    for block in sch.get_child_blocks(root):
        if _is_opaque(sch, block) or _is_reduction(sch, block):
            continue
        try:
            sch.compute_inline(block)
        except ScheduleError:
            pass  # it writes an output, or its reader cannot take it
    for block in sch.get_child_blocks(root):
        if _is_opaque(sch, block):
            continue
        if _is_reduction(sch, block):
            _reduction(sch, block)
        else:
            _spatial(sch, block)


def _has_root(sch: s_tir.Schedule) -> bool:
    """Whether the function is a root block with blocks below it; a kernel of one opaque block has nothing to schedule."""
    body = sch.mod["main"].body
    return isinstance(body, s_tir.SBlockRealize) and body.block.name_hint == "root"


def _is_opaque(sch: s_tir.Schedule, block: Any) -> bool:
    """A block with loops of its own (compute/checks.py, serial scatters)."""
    body = sch.get(block).body
    return not isinstance(body, tirx.BufferStore)


def _is_reduction(sch: s_tir.Schedule, block: Any) -> bool:
    return any(v.iter_type == tirx.IterVar.CommReduce for v in sch.get(block).iter_vars)


def _extent(sch: s_tir.Schedule, loop: Any) -> int | None:
    extent = sch.get(loop).extent
    return int(extent) if isinstance(extent, tirx.IntImm) else None


def _spatial(sch: s_tir.Schedule, block: Any) -> None:
    loops = list(sch.get_loops(block))
    if not loops:
        return
    extents = [_extent(sch, loop) for loop in loops]
    if all(e is not None for e in extents):
        total = 1
        for e in extents:
            total *= e or 0
        inner = extents[-1] or 0
        if inner % LANES == 0 and inner > 0:
            outer, lanes = loops[:-1], sch.split(loops[-1], [None, LANES])
            loops = [*outer, lanes[0]]
            sch.vectorize(lanes[1])
        elif total % LANES == 0 and total > 0:
            fused = sch.fuse(*loops) if len(loops) > 1 else loops[0]
            lanes = sch.split(fused, [None, LANES])
            sch.vectorize(lanes[1])
            loops = [lanes[0]]
        elif len(loops) > 1:
            loops = loops[:-1]
        else:
            return
        if total >= PARALLEL_ELEMENTS:
            sch.parallel(sch.fuse(*loops) if len(loops) > 1 else loops[0])
    elif len(loops) > 1:
        sch.parallel(loops[0])


def _reduction(sch: s_tir.Schedule, block: Any) -> None:
    loops = list(sch.get_loops(block))
    kinds = [v.iter_type for v in sch.get(block).iter_vars]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == tirx.IterVar.DataPar]
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == tirx.IterVar.CommReduce]
    if not reduced:
        return
    columns = bool(spatial) and _reads_along(sch, block, len(spatial) - 1)
    if columns:
        inner = spatial[-1]
        extent = _extent(sch, inner)
        if extent is not None and extent % LANES == 0:
            outer, lanes = sch.split(inner, [None, LANES])
            sch.reorder(*spatial[:-1], outer, *reduced, lanes)
            sch.vectorize(lanes)
            spatial = [*spatial[:-1], outer]
    _parallel_rows(sch, spatial, reduced)
    sch.decompose_reduction(block, reduced[0])


def _parallel_rows(sch: s_tir.Schedule, spatial: list[Any], reduced: list[Any]) -> None:
    if not spatial:
        return
    extents = [_extent(sch, loop) for loop in (*spatial, *reduced)]
    if all(e is not None for e in extents):
        total = 1
        for e in extents:
            total *= e or 0
        if total >= PARALLEL_ELEMENTS and len(spatial) > 0:
            sch.parallel(sch.fuse(*spatial) if len(spatial) > 1 else spatial[0])
    else:
        sch.parallel(spatial[0])


def _reads_along(sch: s_tir.Schedule, block: Any, position: int) -> bool:
    """Whether the block reads some buffer contiguously along spatial variable number `position` (a sum of columns)."""
    node = sch.get(block)
    spatial = [v.var for v in node.iter_vars if v.iter_type == tirx.IterVar.DataPar]
    reduced = [v.var for v in node.iter_vars if v.iter_type == tirx.IterVar.CommReduce]
    for read in node.reads:
        if not read.region:
            continue
        last = read.region[-1].min
        if last.same_as(spatial[position]):
            return True
        if any(last.same_as(r) for r in reduced):
            return False
    return False
