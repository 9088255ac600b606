"""CPU schedules, chosen by rule.

Element-wise blocks are inlined into their readers. What is left is one of three kinds of kernel:

- element-wise: loops fused, the outer part in parallel, the inner part in vector lanes; in tiles where the output's
  columns are rows of what it reads (transposes, layout changes);
- rows: reductions along the innermost dims and the element-wise work between them (softmax, layer norm, their
  backwards): all blocks under one loop over the rows, each reduction in vector lanes first and then across them;
- columns: reductions along outer dims: vector lanes over neighbouring columns.

A dim of unknown size has whole vectors first and single elements for the rest.

A reduction is always decomposed into its start value and its update: otherwise a reduction over zero elements would
leave its output unwritten. A rule that TVM refuses leaves the kernel to the next simpler one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.error import InternalError
from tvm.s_tir.schedule import ScheduleError
from tvm_ffi.structural import structural_equal

from ...importer.compute import intrinsic
from .index_predicates import tests_places
from .loop_fusion import fuse_loops
from .primitives import Block, Loop, Schedule

#: Elements of a vector loop; LLVM splits or joins them for the registers that there are.
LANES = 16
#: The annotation by which TVM's LoopPartition gives the elements that vectors leave over a loop of their own. Not for
#: sizes that are known: LLVM then keeps each element of a lane in a register of its own, and no vector is left.
REST_APART = ("pragma_loop_partition_hint", 1)
#: Below this many elements a parallel loop costs more than it gives.
PARALLEL_ELEMENTS = 1 << 13
#: Loads in an expression from which on it is stored where a reader would repeat it: values that are read twice, each
#: made of values that are read twice, would otherwise double the expression at every step.
REPEATED_LOADS = 64
#: Divisions inside divisions in an index, from which on an element is stored where a reader's index divides again: two
#: reshapes in a row are as far as TVM's simplifier is right (tests/bridge/compile/test_cpu_schedule.py has a case).
NESTED_DIVISIONS = 2
#: Steps of a tile along the dim that an input is contiguous in: a cache line of float32.
TILE = 16
#: Columns that are taken apart by their remainder: see _column_step.
_STEPS = {2, 3, 4}
_BRANCH = ("prim.if_then_else",)
#: Functions that are worth a temporary row instead of computing them once for each reader.
_EXPENSIVE = (
    *("tirx.exp", "tirx.tanh", "tirx.erf", "tirx.log", "tirx.log1p", "tirx.sin", "tirx.cos"),
    *intrinsic.OPS.values(),
)


def schedule(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function of tensor expressions with its loops in the order, lanes and threads of the rules above."""
    if not _has_root(function):
        return function
    sch = Schedule(function)
    _inline(sch, keep_expensive=True)
    left = _blocks(sch)
    if len(left) > 1 or any(_is_reduction(sch, b) for b in left):
        blocks = _after_numbers(sch)
        ahead = {sch.get(b).name_hint for b in left} - {sch.get(b).name_hint for b in blocks}
        if depth := _rows(sch, blocks) or _same_elements(sch, blocks):
            return fuse_loops(sch.function, depth, ahead)
        sch = Schedule(function)
        _inline(sch, keep_expensive=False)
    _give_loops(sch)
    for block in _blocks(sch):
        if _is_opaque(sch, block):
            continue
        if _is_reduction(sch, block):
            _reduction(sch, block)
        else:
            _element_wise(sch, block, list(sch.get_loops(block)))
    return sch.function


def is_element_wise(function: tirx.PrimFunc) -> bool:
    """Whether a function's result is one block that can share its loops with others over the same elements."""
    if not _has_root(function):
        return False
    sch = Schedule(function)
    _inline(sch, keep_expensive=False)
    blocks = _blocks(sch)
    return len(blocks) == 1 and _runs_along(sch, blocks[0])


# ---- what a block is ----


def _has_root(function: tirx.PrimFunc) -> bool:
    """Whether the function is a root block with blocks below it; a kernel of one opaque block is scheduled already."""
    body = function.body
    return isinstance(body, s_tir.SBlockRealize) and body.block.name_hint == "root"


def _blocks(sch: Schedule) -> list[Block]:
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def _after_numbers(sch: Schedule) -> list[Block]:
    """The blocks without those of one number (a power of AdamW's step count) that can come before them all."""
    found: list[Block] = []
    for block in _blocks(sch):
        if _is_opaque(sch, block) or _is_reduction(sch, block) or sch.get_loops(block):
            found.append(block)
            continue
        written = [sch.get(other).writes[0].source for other in found if not _is_opaque(sch, other)]
        if any(load.source.same_as(w) for load in _loads(sch, block) for w in written):
            found.append(block)
    return found


def _is_opaque(sch: Schedule, block: Block) -> bool:
    """A block with loops of its own (compute/checks.py, serial scatters)."""
    return not isinstance(sch.get(block).body, tirx.BufferStore)


def _is_reduction(sch: Schedule, block: Block) -> bool:
    return any(v.iter_type == tirx.IterVar.CommReduce for v in sch.get(block).iter_vars)


def _extent(sch: Schedule, loop: Loop) -> int | None:
    extent = sch.get(loop).extent
    return int(extent) if isinstance(extent, tirx.IntImm) else None


def _extents(sch: Schedule, loops: Sequence[Loop]) -> list[int] | None:
    """Extents of the loops, None where one is symbolic."""
    extents = [_extent(sch, loop) for loop in loops]
    return None if any(e is None for e in extents) else [e for e in extents if e is not None]


def _lanes(sch: Schedule, loop: Loop, lanes: int) -> tuple[Loop, Loop]:
    """Splits a loop: (steps, lane). Where its extent is symbolic, whole vectors come first and then the rest.

    The rest is made by TVM's LoopPartition, which takes the test for the end out of the whole vectors.
    """
    is_symbolic = _extent(sch, loop) is None
    steps, lane = sch.split(loop, [None, lanes])
    if is_symbolic:
        sch.annotate(steps, *REST_APART)
    return steps, lane


def _lanes_for(sch: Schedule, block: Block, loop: Loop) -> int | None:
    """How many lanes a block's innermost loop gets; None where vectors do not pay.

    LoopPartition takes the tests in an element's expression for tests of the loop's end: it ends the process at some
    branches, and where an element tests its own place (a mask made of positions) its loops write beyond the tensor.
    """
    extent = _extent(sch, loop)
    if extent is None:
        return None if _calls(sch, block, _BRANCH) or tests_places(sch.get(block)) else LANES
    return next((n for n in (LANES, LANES // 2) if extent and extent % n == 0), None)


def _split_by_kind(sch: Schedule, block: Block, loops: Sequence[Loop]) -> tuple[list[Loop], list[Loop]]:
    """(spatial loops, reduction loops) of a block whose loops bind its variables one to one."""
    kinds = [v.iter_type for v in sch.get(block).iter_vars]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == tirx.IterVar.DataPar]
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == tirx.IterVar.CommReduce]
    return spatial, reduced


def _give_loops(sch: Schedule) -> None:
    """A loop of one step around blocks that have none: where such a block stands by, TVM's rfactor fails a check."""
    for block in _blocks(sch):
        if not _is_opaque(sch, block) and not sch.get_loops(block):
            sch.add_unit_loop(block)


# ---- inlining ----


def _inline(sch: Schedule, *, keep_expensive: bool) -> None:
    for block in _blocks(sch):
        if _is_opaque(sch, block) or _is_reduction(sch, block):
            continue
        if keep_expensive and _calls(sch, block, _EXPENSIVE) and _is_repeated(sch, block):
            continue
        loads = _loads(sch, block)
        if len(loads) >= REPEATED_LOADS and len(_reads_of(sch, block)) > 1:
            continue
        if _divisions(loads) >= NESTED_DIVISIONS and _divisions(_reads_of(sch, block)):
            continue
        # Refused where the block writes an output or its reader cannot take it.
        with contextlib.suppress(ScheduleError):
            sch.compute_inline(block)


def _is_repeated(sch: Schedule, block: Block) -> bool:
    """Whether inlining a block computes its elements more than once: it has two readers, or is one number for many."""
    readers = sch.get_consumers(block)
    return len(readers) > 1 or (not sch.get_loops(block) and any(sch.get_loops(reader) for reader in readers))


def _loads(sch: Schedule, block: Block) -> list[ir.TensorLoad]:
    """The loads of a block's expression, each as often as it stands there."""
    found: list[ir.TensorLoad] = []
    tvm_ffi.structural_walk(sch.get(block).body, (ir.TensorLoad, found.append))
    return found


def _reads_of(sch: Schedule, block: Block) -> list[ir.TensorLoad]:
    """The loads of a block's result in its readers' expressions."""
    buffer = sch.get(block).writes[0].source
    return [load for reader in sch.get_consumers(block) for load in _loads(sch, reader) if load.source.same_as(buffer)]


def _divisions(loads: Sequence[ir.TensorLoad]) -> int:
    """How deep divisions and remainders are nested in the indices of these loads."""

    def depth(expr: Any) -> int:
        inner = max((depth(getattr(expr, side)) for side in ("a", "b") if hasattr(expr, side)), default=0)
        return inner + isinstance(expr, tirx.FloorDiv | tirx.FloorMod)

    return max((depth(index) for load in loads for index in load.indices), default=0)


def _calls(sch: Schedule, block: Block, names: Sequence[str]) -> bool:
    """Whether a block's expression calls an op of one of these names."""
    found = False

    def visit(call: Any) -> None:
        nonlocal found
        found = found or getattr(call.op, "name", "") in names

    tvm_ffi.structural_walk(sch.get(block).body, (ir.Call, visit))
    return found


def _in_parallel(sch: Schedule, loops: list[Loop], divided: bool) -> None:
    """Runs nested loops in parallel: fused into one, or the outermost of them alone.

    `divided`: an index below divides. A fused loop's variables are quotients and remainders of one number, and TVM's
    simplifier takes divisions of those wrong (NESTED_DIVISIONS): windows that overlap read other rows.
    """
    if divided or len(loops) == 1:
        sch.parallel(next((loop for loop in loops if _extent(sch, loop) != 1), loops[0]))
    else:
        sch.parallel(sch.fuse(*loops))


# ---- rows ----


def _rows(sch: Schedule, blocks: list[Block]) -> int:
    """Schedules the blocks of a kernel of reductions along the innermost dims, each below loops over the rows.

    Returns how many loops those are; 0 (and `sch` spoilt) where the kernel is none.
    """
    if not blocks or any(_is_opaque(sch, b) for b in blocks) or not _is_reduction(sch, blocks[0]):
        return 0
    rows = _row_loops(sch, blocks)
    if not rows or not _stay_in_rows(sch, blocks, rows):
        return 0
    _give_loops(sch)
    try:
        return _each_along_rows(sch, blocks, rows)
    except (ScheduleError, InternalError):
        return 0


def _stay_in_rows(sch: Schedule, blocks: list[Block], rows: int) -> bool:
    """Whether each block reads of what another one wrote only what lies in its own row."""
    written = {sch.get(block).writes[0].source for block in blocks}
    sizes = [_extent(sch, loop) for loop in list(sch.get_loops(blocks[0]))[:rows]]

    def own(block: Block) -> bool:
        variables = [v.var for v in sch.get(block).iter_vars[:rows]]
        body = sch.get(block).body
        accesses = [(body.buffer, body.indices), *((load.source, load.indices) for load in _loads(sch, block))]
        return all(
            len(indices) >= rows
            and all(n == 1 or i.same_as(v) for n, i, v in zip(sizes, indices, variables, strict=False))
            for buffer, indices in accesses
            if buffer in written
        )

    return all(map(own, blocks))


def _each_along_rows(sch: Schedule, blocks: list[Block], rows: int) -> int:
    work = _extents(sch, sch.get_loops(blocks[0]))
    is_parallel = work is None or math.prod(work) >= PARALLEL_ELEMENTS
    divided = work is None or any(_divisions(_loads(sch, block)) for block in blocks)
    depth = rows
    # Vector and parallel loops come before a reduction is decomposed: after that TVM refuses both.
    for block in blocks:
        reduced = _is_reduction(sch, block)
        partial = _in_lanes(sch, block, rows) if reduced else None
        for part in (partial, block):
            if part is None:
                continue
            loops = list(sch.get_loops(part))
            start = loops[rows] if reduced else None
            if part is partial:
                sch.vectorize(loops[-1])
            elif not reduced:
                _vectorize(sch, part, loops[rows:])
            if is_parallel:
                _in_parallel(sch, loops[:rows], divided)
                depth = 1 if not divided else rows
            if start is not None:
                sch.decompose_reduction(part, start)
    return depth


def _row_loops(sch: Schedule, blocks: list[Block]) -> int:
    """How many leading loops all blocks share as rows; 0 where the kernel is no row kernel.

    Below them a reduction has its reduction loops and no spatial loop of more than one step.
    """
    extents = [[sch.get(loop).extent for loop in sch.get_loops(block)] for block in blocks]
    rows = 0
    while all(len(e) > rows and structural_equal(e[rows], extents[0][rows]) for e in extents):
        rows += 1
    for block in blocks:
        if not _is_reduction(sch, block):
            continue
        spatial, reduced = _split_by_kind(sch, block, list(sch.get_loops(block)))
        rows = min(rows, len(spatial))
        if not reduced or not spatial or reads_columns(sch, block) or any(_extent(sch, s) != 1 for s in spatial[rows:]):
            return 0
    return rows


def _in_lanes(sch: Schedule, block: Block, rows: int) -> Block | None:
    """Splits a reduction into vector lanes and a reduction across them.

    Returns the block of partial results, its loops (rows, reduction, lane); None where the extent is too small or TVM
    does not know the combination to be associative.
    """
    loop = list(sch.get_loops(block))[-1]
    extent = _extent(sch, loop)
    if extent is None:
        lanes = _lanes_for(sch, block, loop)
    else:
        lanes = next((n for n in (LANES, 8, 4) if extent % n == 0 and extent > n), None)
    writes = sch.get(block).writes
    if lanes is None or len(writes) > 1 or str(writes[0].source.ty.dtype) == "bool":
        return None
    trial = sch.copy()
    try:
        trial.rfactor(_lanes(trial, loop, lanes)[1], factor_axis=rows)
    except (ScheduleError, InternalError):  # a combination that TVM does not know to be associative
        return None
    return sch.rfactor(_lanes(sch, loop, lanes)[1], factor_axis=rows)


# ---- columns, and reductions that no group took ----


def _reduction(sch: Schedule, block: Block) -> None:
    spatial, reduced = _split_by_kind(sch, block, list(sch.get_loops(block)))
    if not reduced:
        return
    if all(_extent(sch, loop) == 1 for loop in spatial):
        partial = _in_lanes(sch, block, len(spatial))
        if partial is not None:
            *steps, lane = list(sch.get_loops(partial))[len(spatial) :]
            sch.vectorize(lane)
            sch.decompose_reduction(partial, steps[0])
            sch.decompose_reduction(block, list(sch.get_loops(block))[-1])
            return
    work = _extents(sch, [*spatial, *reduced])
    if spatial and reads_columns(sch, block) and _lanes_for(sch, block, spatial[-1]) == LANES:
        outer, lanes = _lanes(sch, spatial[-1], LANES)
        sch.reorder(*spatial[:-1], outer, *reduced, lanes)
        sch.vectorize(lanes)
        spatial = [*spatial[:-1], outer]
    if work is None:
        spatial = [loop for loop in spatial if not sch.get(loop).annotations]  # no loop that has a rest apart
    if spatial and (work is None or math.prod(work) >= PARALLEL_ELEMENTS):
        _in_parallel(sch, spatial, work is None or _divisions(_loads(sch, block)) > 0)
    sch.decompose_reduction(block, reduced[0])


def reads_columns(sch: Schedule, block: Block) -> bool:
    """Whether a reduction reads its largest input contiguously along a dim that it keeps (a sum of columns)."""
    node = sch.get(block)
    spatial = [v.var for v in node.iter_vars if v.iter_type == tirx.IterVar.DataPar]
    reduced = [v.var for v in node.iter_vars if v.iter_type == tirx.IterVar.CommReduce]
    for read in sorted(node.reads, key=lambda r: -len(r.region)):
        if not read.region:
            continue
        last = read.region[-1].min
        if any(last.same_as(r) for r in reduced):
            return False
        if any(last.same_as(s) for s in spatial):
            return True
    return False


# ---- element-wise ----


def _vectorize(sch: Schedule, block: Block, loops: list[Loop]) -> None:
    """Vector lanes in the innermost of these loops; no parallel loop."""
    if not loops or _is_one_bfloat16(sch, block):
        return
    lanes = _lanes_for(sch, block, loops[-1])
    if lanes is not None:
        sch.vectorize(_lanes(sch, loops[-1], lanes)[1])


def _is_one_bfloat16(sch: Schedule, block: Block) -> bool:
    """Whether every vector lane would store the same bfloat16 (a fill, a broadcast): TVM cannot compile that store."""
    node = sch.get(block)
    if str(node.writes[0].source.ty.dtype) != "bfloat16":
        return False
    inner = [v.var for v in node.iter_vars][-1:]
    reads = [r.min for read in node.reads for r in read.region]
    used = False

    def visit(var: Any) -> None:
        nonlocal used
        used = used or any(var.same_as(v) for v in inner)

    for index in [*reads, node.body.value]:
        tvm_ffi.structural_walk(index, (tirx.Var, visit))
    return not used


def _column_step(sch: Schedule, block: Block) -> int:
    """The c of an index that divides the column of the output by c (pooling's gradient, repeated columns); 0 for none.

    Vector lanes over such columns would read one element several times, and each lane by an address of its own.
    """
    node = sch.get(block)
    column = node.iter_vars[-1].var
    found: set[int] = set()

    def is_column(expr: Any) -> bool:
        while isinstance(expr, tirx.Add | tirx.Sub) and isinstance(expr.b, tirx.IntImm):
            expr = expr.a
        return bool(expr.same_as(column))

    def visit(expr: Any) -> None:
        if isinstance(expr.b, tirx.IntImm) and is_column(expr.a):
            found.add(int(expr.b))

    for load in _loads(sch, block):
        for index in load.indices:
            tvm_ffi.structural_walk(index, (tirx.FloorDiv, visit))
    return found.pop() if len(found) == 1 and found <= _STEPS else 0


def _crossing(sch: Schedule, block: Block) -> int | None:
    """The number of the dim, not the last, that a load runs along contiguously while the last one crosses its rows."""
    node = sch.get(block)
    *outer, last = [v.var for v in node.iter_vars]
    for load in _loads(sch, block):
        *rows, column = load.indices or [None]
        if any(_contains(index, last) for index in rows) and not _contains(column, last):
            found = next((d for d, var in enumerate(outer) if var.same_as(column)), None)
            if found is not None:
                return found
    return None


def _contains(expr: Any, wanted: Any) -> bool:
    found = False

    def visit(var: Any) -> None:
        nonlocal found
        found = found or var.same_as(wanted)

    tvm_ffi.structural_walk(expr, (tirx.Var, visit))
    return found


def _in_tiles(sch: Schedule, loops: list[Loop], extents: list[int], crossing: int) -> list[Loop]:
    """Tiles of the dims `crossing` and last, vector lanes in the last; returns the loops around, [] where none fits.

    A vector along the last dim reads one element of each of its rows. The next steps read those rows' next elements,
    which lie in the cache lines that the first step fetched.
    """
    lanes, steps = (next(n for n in range(TILE, 0, -1) if extents[d] % n == 0) for d in (-1, crossing))
    if min(lanes, steps) < 4:
        return []
    columns, inner = sch.split(loops[-1], [None, lanes])
    outer, step = sch.split(loops[crossing], [None, steps])
    around = [*loops[:crossing], outer, *loops[crossing + 1 : -1], columns]
    sch.reorder(*around, step, inner)
    sch.vectorize(inner)
    return around


def _runs_along(sch: Schedule, block: Block) -> bool:
    """Whether a block is element-wise and wants no other order than its result's: no tiles, no steps of columns."""
    if _is_opaque(sch, block) or _is_reduction(sch, block) or not sch.get_loops(block):
        return False
    return not _column_step(sch, block) and _crossing(sch, block) is None and not _is_one_bfloat16(sch, block)


def _same_elements(sch: Schedule, blocks: list[Block]) -> int:
    """Schedules the blocks of a kernel with several results, all over the same elements (passes/horizontal_fusion.py).

    Returns how many loops they have in common; 0 (and `sch` spoilt) where the kernel is none.
    """
    if len(_blocks(sch)) < 2 or not blocks or not all(_runs_along(sch, block) for block in blocks):
        return 0
    nests = [list(sch.get_loops(block)) for block in blocks]
    extents = [[sch.get(loop).extent for loop in loops] for loops in nests]
    rank = len(nests[0])
    if not all(structural_equal(e, extents[0]) for e in extents) or not _stay_in_rows(sch, blocks, rank):
        return 0
    sizes = _extents(sch, nests[0])
    divided = any(_divisions(_loads(sch, block)) for block in blocks)
    total = None if sizes is None else math.prod(sizes)
    depth = 0
    for block, loops in zip(blocks, nests, strict=True):
        around = loops[:-1]
        if sizes is None:
            _vectorize(sch, block, loops)  # by row: the vectors and the rest of a symbolic row are two loops
        elif total and (sizes[-1] % LANES == 0 or (total % LANES == 0 and not divided)):
            if sizes[-1] % LANES:
                around, loops = [], [sch.fuse(*loops) if rank > 1 else loops[0]]
            outer, lanes = sch.split(loops[-1], [None, LANES])
            sch.vectorize(lanes)
            around = [*around, outer]
        depth = len(around)
        if around and (total is None or total >= PARALLEL_ELEMENTS):
            _in_parallel(sch, around, divided or sizes is None)
            depth = depth if divided or sizes is None else 1
    return depth


def _element_wise(sch: Schedule, block: Block, loops: list[Loop]) -> None:
    if not loops or _is_one_bfloat16(sch, block):
        return
    extents = _extents(sch, loops)
    if extents is None:
        _symbolic(sch, block, loops)
        return
    total = math.prod(extents)
    step = _column_step(sch, block)
    divided = _divisions(_loads(sch, block)) > 0
    crossing = _crossing(sch, block)
    if crossing is not None and total and (around := _in_tiles(sch, loops, extents, crossing)):
        if total >= PARALLEL_ELEMENTS:
            _in_parallel(sch, around, divided)
        return
    if step and extents[-1] % step == 0 and total:
        # LLVM makes vectors of the loop around: its steps read and write neighbours.
        sch.unroll(sch.split(loops[-1], [None, step])[1])
        rest = loops[:-1]
        lanes = None
    elif extents[-1] % LANES == 0 and total:
        outer, lanes = sch.split(loops[-1], [None, LANES])
        rest = [*loops[:-1], outer]
    elif total % LANES == 0 and total and not divided:
        outer, lanes = sch.split(sch.fuse(*loops) if len(loops) > 1 else loops[0], [None, LANES])
        rest = [outer]
    else:
        rest = loops[:-1]
        lanes = None
    if lanes is not None:
        sch.vectorize(lanes)
    if total >= PARALLEL_ELEMENTS and rest:
        _in_parallel(sch, rest, divided)


def _symbolic(sch: Schedule, block: Block, loops: list[Loop]) -> None:
    """Loops of which some are symbolic: fusing those would cost a division an element."""
    *outer, last = loops
    step, extent = _column_step(sch, block), _extent(sch, last)
    if step and (_lanes_for(sch, block, last) is not None if extent is None else extent % step == 0):
        sch.unroll(_lanes(sch, last, step)[1])
    elif not step and (lanes := _lanes_for(sch, block, last)) is not None:
        sch.vectorize(_lanes(sch, last, lanes)[1])
    if outer:  # not the columns: LoopPartition takes a parallel loop apart wrongly
        _in_parallel(sch, outer, divided=True)
