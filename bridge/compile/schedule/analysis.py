# SPDX-License-Identifier: Apache-2.0
"""What a kernel and its blocks are, whatever the device: asked by schedule rules and by passes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm_ffi.structural import structural_equal

from .primitives import BlockRV, LoopRV, Schedule

_T = TypeVar("_T")
#: Columns that are taken apart by their remainder: see Block.column_step.
_STEPS = {2, 3, 4}
_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
_OPERANDS = ("a", "b", "value", "condition", "true_value", "false_value")


def has_root(function: tirx.PrimFunc) -> bool:
    """Whether the function is a root block with blocks below it; a kernel of one opaque block is scheduled already."""
    body = function.body
    return isinstance(body, s_tir.SBlockRealize) and body.block.name_hint == "root"


def nests(function: tirx.PrimFunc) -> list[Any]:
    """The statements below the root block, each a nest of loops."""
    body = function.body.block.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def collect(root: Any, *kinds: Any) -> list[Any]:
    """What is of these classes below a statement or an expression, each as often as it stands there."""
    found: list[Any] = []
    tvm_ffi.structural_walk(root, (kinds, found.append))
    return found


def divisions(loads: Iterable[ir.TensorLoad]) -> int:
    """How deep divisions and remainders are nested in the indices of these loads."""

    def depth(expr: Any) -> int:
        if isinstance(expr, tirx.Var):
            return 0
        inner = max((depth(getattr(expr, side)) for side in ("a", "b") if hasattr(expr, side)), default=0)
        return inner + isinstance(expr, tirx.FloorDiv | tirx.FloorMod)

    return max((depth(index) for load in loads for index in load.indices), default=0)


def product(sizes: Sequence[int | None]) -> int | None:
    """Of all sizes; None where one is symbolic."""
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def with_block_body(realize: Any, body: Any) -> Any:
    """The same block around other statements."""
    b = realize.block
    block = s_tir.SBlock(
        b.iter_vars, b.reads, b.writes, b.name_hint, body, b.init, b.alloc_buffers, b.match_buffers, b.annotations
    )
    return s_tir.SBlockRealize(realize.iter_values, realize.predicate, block)


class Block:
    """A block of a schedule: its expression and its loops, each looked at once. It does not follow later primitives."""

    def __init__(self, schedule: Schedule, rv: BlockRV):
        self.rv = rv
        self.node = schedule.get(rv)
        self.loops: list[LoopRV] = list(schedule.get_loops(rv))
        self.extents = [schedule.get(loop).extent for loop in self.loops]

    @cached_property
    def sizes(self) -> list[int | None]:
        """The extents as numbers, None for a symbolic one."""
        return [int(extent) if isinstance(extent, tirx.IntImm) else None for extent in self.extents]

    @cached_property
    def steps(self) -> int | None:
        """How often the block runs; None where an extent is symbolic."""
        return product(self.sizes)

    @cached_property
    def is_opaque(self) -> bool:
        """A block with loops of its own (compute/checks.py, serial scatters)."""
        return not isinstance(self.node.body, tirx.BufferStore)

    @cached_property
    def is_reduction(self) -> bool:
        return any(v.iter_type == tirx.IterVar.CommReduce for v in self.node.iter_vars)

    def by_kind(self, of_variables: Sequence[_T]) -> tuple[list[_T], list[_T]]:
        """(those of spatial variables, those of reduced ones), given one for each of the block's variables."""
        pairs = list(zip(of_variables, (v.iter_type for v in self.node.iter_vars), strict=True))
        spatial = [one for one, kind in pairs if kind == tirx.IterVar.DataPar]
        return spatial, [one for one, kind in pairs if kind == tirx.IterVar.CommReduce]

    @property
    def written(self) -> Any:
        """The buffer of the block's result."""
        return self.node.writes[0].source

    @cached_property
    def _loads_and_calls(self) -> list[Any]:
        return collect(self.node.body, ir.TensorLoad, ir.Call)

    @cached_property
    def loads(self) -> list[ir.TensorLoad]:
        """The loads of the block's expression, each as often as it stands there."""
        return [found for found in self._loads_and_calls if isinstance(found, ir.TensorLoad)]

    @cached_property
    def calls(self) -> set[str]:
        """Names of the ops that the block's expression calls."""
        return {getattr(found.op, "name", "") for found in self._loads_and_calls if isinstance(found, ir.Call)}

    @cached_property
    def divisions(self) -> int:
        return divisions(self.loads)

    @cached_property
    def tests_places(self) -> bool:
        """Whether a comparison has one of the block's variables on a side, not in the index of a load."""
        variables = {v.var for v in self.node.iter_vars}

        def has_place(expr: Any) -> bool:
            if isinstance(expr, ir.TensorLoad):
                return False
            if isinstance(expr, tirx.Var):
                return expr in variables
            inner = [getattr(expr, name) for name in _OPERANDS if hasattr(expr, name)]
            return any(map(has_place, [*inner, *getattr(expr, "args", [])]))

        return any(has_place(test.a) or has_place(test.b) for test in collect(self.node.body, *_COMPARISONS))

    @cached_property
    def reads_columns(self) -> bool:
        """Whether a reduction reads its largest input contiguously along a dim that it keeps (a sum of columns)."""
        spatial, reduced = self.by_kind([v.var for v in self.node.iter_vars])
        for read in sorted(self.node.reads, key=lambda r: -len(r.region)):
            if not read.region:
                continue
            last = read.region[-1].min
            if any(last.same_as(r) for r in reduced):
                return False
            if any(last.same_as(s) for s in spatial):
                return True
        return False

    @cached_property
    def is_one_bfloat16(self) -> bool:
        """Whether every vector lane would store the same bfloat16 (a fill, a broadcast): TVM cannot compile that."""
        if str(self.written.ty.dtype) != "bfloat16":
            return False
        inner = [v.var for v in self.node.iter_vars][-1:]
        reads = [r.min for read in self.node.reads for r in read.region]
        return not any(contains(expr, var) for expr in [*reads, self.node.body.value] for var in inner)

    @cached_property
    def column_step(self) -> int:
        """The c of an index that divides the output's column by c (pooling's gradient, repeated columns); 0 for none.

        Vector lanes over such columns would read one element several times, and each lane by an address of its own.
        """
        column = self.node.iter_vars[-1].var
        indices = [index for load in self.loads for index in load.indices if not isinstance(index, tirx.Var)]
        found: set[int] = set()
        for division in (d for index in indices for d in collect(index, tirx.FloorDiv)):
            divided = division.a
            while isinstance(divided, tirx.Add | tirx.Sub) and isinstance(divided.b, tirx.IntImm):
                divided = divided.a
            if isinstance(division.b, tirx.IntImm) and divided.same_as(column):
                found.add(int(division.b))
        return found.pop() if len(found) == 1 and found <= _STEPS else 0

    @cached_property
    def crossing(self) -> int | None:
        """The number of the dim, not the last, along which a load is contiguous while the last one crosses its rows."""
        *outer, last = [v.var for v in self.node.iter_vars]
        for load in self.loads:
            *rows, column = load.indices or [None]
            if any(contains(index, last) for index in rows) and not contains(column, last):
                found = next((d for d, var in enumerate(outer) if var.same_as(column)), None)
                if found is not None:
                    return found
        return None

    @property
    def is_element_wise(self) -> bool:
        """Whether the block is element-wise and wants no order but its result's: no tiles, no steps of columns."""
        if self.is_opaque or self.is_reduction or not self.loops:
            return False
        return not self.column_step and self.crossing is None and not self.is_one_bfloat16


def contains(expr: Any, wanted: tirx.Var) -> bool:
    """Whether the variable stands in the expression."""
    if isinstance(expr, tirx.Var):
        return bool(expr.same_as(wanted))
    return any(var.same_as(wanted) for var in collect(expr, tirx.Var))


def common_loops(blocks: Sequence[Block]) -> int:
    """How many leading loops of the same extents all blocks have."""
    count = 0
    while all(len(b.extents) > count and structural_equal(b.extents[count], blocks[0].extents[count]) for b in blocks):
        count += 1
    return count


def stay_in_rows(blocks: Sequence[Block], rows: int) -> bool:
    """Whether each block reads of what another one wrote only what lies in its own row: the first `rows` dims."""
    written = {block.written for block in blocks}
    sizes = blocks[0].sizes[:rows]

    def own(block: Block) -> bool:
        variables = [v.var for v in block.node.iter_vars[:rows]]
        body = block.node.body
        accesses = [(body.buffer, body.indices), *((load.source, load.indices) for load in block.loads)]
        return all(
            len(indices) >= rows
            and all(n == 1 or i.same_as(v) for n, i, v in zip(sizes, indices, variables, strict=False))
            for buffer, indices in accesses
            if buffer in written
        )

    return all(map(own, blocks))


def row_loops(blocks: Sequence[Block]) -> int:
    """How many leading loops all blocks share as rows; 0 where the kernel is no row kernel.

    Below them a reduction has its reduction loops and no spatial loop of more than one step.
    """
    rows = common_loops(blocks)
    for block in blocks:
        if not block.is_reduction:
            continue
        spatial, reduced = block.by_kind(block.sizes)
        rows = min(rows, len(spatial))
        if not reduced or not spatial or block.reads_columns or any(size != 1 for size in spatial[rows:]):
            return 0
    return rows


def give_loops(sch: Schedule, blocks: Sequence[Block]) -> list[Block]:
    """The blocks, each below a loop: one of one step is added around those that have none.

    Where such a block stands by, TVM's rfactor fails a check.
    """
    bare = [block for block in blocks if not block.is_opaque and not block.loops]
    for block in bare:
        sch.add_unit_loop(block.rv)
    return [Block(sch, block.rv) if block in bare else block for block in blocks]
