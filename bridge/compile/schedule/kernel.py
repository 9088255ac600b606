# SPDX-License-Identifier: Apache-2.0
"""A kernel as schedule rules see it: element-wise blocks inlined into their readers, the rest analysed."""

from __future__ import annotations

import contextlib
from functools import cached_property, lru_cache

from tvm import ir, tirx
from tvm.s_tir.schedule import ScheduleError

from ...importer.compute import intrinsic
from .analysis import Block, collect, divisions, has_root
from .primitives import Schedule

#: Loads in an expression from which on it is stored where a reader would repeat it: values that are read twice, each
#: made of values that are read twice, would otherwise double the expression at every step.
REPEATED_LOADS = 64
#: Divisions inside divisions in an index, from which on an element is stored where a reader's index divides again: two
#: reshapes in a row are as far as TVM's simplifier is right (the tests of schedules have a case).
NESTED_DIVISIONS = 2
#: Functions that are worth a temporary row instead of computing them once for each reader.
_EXPENSIVE = {
    *("tirx.exp", "tirx.tanh", "tirx.erf", "tirx.log", "tirx.log1p", "tirx.sin", "tirx.cos"),
    *intrinsic.OPS.values(),
}


class Inlined:
    """The blocks that inlining left of a kernel."""

    def __init__(self, schedule: Schedule):
        self._schedule = schedule
        self.blocks = [Block(schedule, rv) for rv in schedule.blocks()]

    def schedule(self) -> Schedule:
        """A schedule to change; the variables of `blocks` are valid in it."""
        return self._schedule.copy()

    @cached_property
    def after_numbers(self) -> list[Block]:
        """The blocks without those of one number (a power of AdamW's step count) that can come before them all."""
        found: list[Block] = []
        for block in self.blocks:
            if block.is_opaque or block.is_reduction or block.loops:
                found.append(block)
                continue
            written = [other.written for other in found if not other.is_opaque]
            if any(load.source.same_as(w) for load in block.loads for w in written):
                found.append(block)
        return found

    @property
    def scalar_blocks(self) -> set[str]:
        """Names of the blocks of one number, which come before `after_numbers`."""
        return {b.node.name_hint for b in self.blocks} - {b.node.name_hint for b in self.after_numbers}


class Kernel:
    """The two ways to inline a function that has a root block."""

    def __init__(self, function: tirx.PrimFunc):
        self._outputs = set(function.params)
        self._schedule = Schedule(function)
        self._is_kept = False

    @cached_property
    def with_temporaries(self) -> Inlined:
        """Expensive functions are computed once, and stored where several blocks read them."""
        return self.inline(keep_expensive=True)

    @cached_property
    def inlined(self) -> Inlined:
        """Expensive functions are computed by each reader."""
        first = self.with_temporaries
        return self.inline(keep_expensive=False) if self._is_kept else first

    def inline(self, *, keep_expensive: bool) -> Inlined:
        schedule = self._schedule.copy()
        for rv in schedule.blocks():
            block = Block(schedule, rv)
            if block.is_opaque or block.is_reduction or block.written in self._outputs:
                continue
            if keep_expensive and block.calls & _EXPENSIVE and _is_repeated(schedule, block):
                self._is_kept = True
                continue
            if len(block.loads) >= REPEATED_LOADS and len(_reads_of(schedule, block)) > 1:
                continue
            if block.divisions >= NESTED_DIVISIONS and divisions(_reads_of(schedule, block)):
                continue
            with contextlib.suppress(ScheduleError):  # refused where a reader cannot take it
                schedule.compute_inline(rv)
        return Inlined(schedule)


@lru_cache(maxsize=1)
def analysed(function: tirx.PrimFunc) -> Kernel:
    """The kernel of a function; the rules that are tried on it one after the other get the same."""
    return Kernel(function)


def is_element_wise(function: tirx.PrimFunc) -> bool:
    """Whether a function's result is one block that can share its loops with others over the same elements."""
    if not has_root(function):
        return False
    blocks = Kernel(function).inline(keep_expensive=False).blocks
    return len(blocks) == 1 and blocks[0].is_element_wise


def _is_repeated(schedule: Schedule, block: Block) -> bool:
    """Whether inlining a block computes its elements more than once: it has two readers, or is one number for many."""
    readers = schedule.get_consumers(block.rv)
    return len(readers) > 1 or (not block.loops and any(schedule.get_loops(reader) for reader in readers))


def _reads_of(schedule: Schedule, block: Block) -> list[ir.TensorLoad]:
    """The loads of a block's result in its readers' expressions."""
    readers = [schedule.get(rv).body for rv in schedule.get_consumers(block.rv)]
    return [load for body in readers for load in collect(body, ir.TensorLoad) if load.source.same_as(block.written)]
