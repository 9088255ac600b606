# SPDX-License-Identifier: Apache-2.0
"""The schedule rules of NVIDIA GPUs, in the order in which they are tried.

They leave blocks that are statements (te.extern) as they are: passes/loops.py gives those to threads.
"""

from ....compile.schedule import Rule
from .each_block import EachBlock
from .rows import Rows
from .same_elements import SameElements

RULES: tuple[Rule, ...] = (Rows(), SameElements(), EachBlock())
