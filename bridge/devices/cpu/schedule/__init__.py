# SPDX-License-Identifier: Apache-2.0
"""The CPU's schedule rules, in the order in which they are tried.

A reduction is always decomposed into its start value and its update: otherwise a reduction over zero elements would
leave its output unwritten.
"""

from ....compile.schedule import Rule
from .each_block import BlockRule, EachBlock
from .element_wise import ColumnSteps, Lanes
from .reductions import Columns, Numbers
from .rows import Rows
from .same_elements import SameElements
from .tiles import Tiles

#: For a block that shares its loops with no other.
BLOCK_RULES: tuple[BlockRule, ...] = (Numbers(), Columns(), Tiles(), ColumnSteps(), Lanes())
#: For a kernel.
RULES: tuple[Rule, ...] = (Rows(), SameElements(), EachBlock(BLOCK_RULES))
