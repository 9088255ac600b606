# SPDX-License-Identifier: Apache-2.0
"""What no rule takes as a whole: each block by itself, by the first rule for blocks that takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import tvm
from tvm import tirx

from ....compile.schedule.analysis import Block, give_loops
from ....compile.schedule.kernel import analysed
from ....compile.schedule.primitives import Schedule


class BlockRule(Protocol):
    """A way to schedule one kind of block."""

    name: str

    def apply(self, sch: Schedule, block: Block) -> bool:
        """Schedules the block, and says so; False where it is of another kind, with `sch` as it was."""


class EachBlock:
    """The last rule: it takes every kernel."""

    name = "each block"

    def __init__(self, rules: Sequence[BlockRule]):
        self.rules = rules

    def apply(self, function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc:
        kernel = analysed(function).inlined
        sch = kernel.schedule()
        for block in give_loops(sch, kernel.blocks):
            if not block.is_opaque and (block.is_reduction or not block.is_one_bfloat16):
                any(rule.apply(sch, block) for rule in self.rules)
        return sch.function
