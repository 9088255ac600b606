# SPDX-License-Identifier: Apache-2.0
"""What one stage tells a later one in attributes of a Relax module: each name here, with what it says.

The importer writes them, and the passes of compile/ read and replace them.
"""

from __future__ import annotations

import functools
from typing import Any

from tvm import ir, relax

#: Value of a kernel's `op_pattern` (Relax's OpPatternKind) where it is not fused with others.
OPAQUE = 8
#: Of a kernel that calls a library and computes nothing itself: True.
LIBRARY_CALL = "relaxgrad.library_call"
#: Of `main`: pairs (number of a result, number of the parameter of which it is the new value).
NEW_VALUES = "relaxgrad.new_values"
#: Of `main` after compile/passes/in_place.py: the pairs of NEW_VALUES that are written in place; no results any more.
WRITTEN = "relaxgrad.written"
#: Of a kernel: numbers of the arguments that it overwrites.
OVERWRITES = "relaxgrad.overwrites"


#: Of a loop of a kernel written as statements: how many perfectly nested loops from it on, it among them, have rounds
#: that do not depend on each other.
INDEPENDENT = "relaxgrad.independent"


def is_kernel_call(value: Any) -> bool:
    """Whether a binding's value is a `call_tir`."""
    return isinstance(value, relax.Call) and value.op.same_as(_call_tir())


@functools.cache
def _call_tir() -> ir.Op:
    return ir.Op.get("relax.call_tir")
