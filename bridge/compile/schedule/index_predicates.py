"""Blocks whose elements depend on where they stand: masks of positions, sequences."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
_OPERANDS = ("a", "b", "value", "condition", "true_value", "false_value")


def tests_places(block: s_tir.SBlock) -> bool:
    """Whether a comparison in a block's expression has one of its variables on a side, not in the index of a load."""
    variables = [v.var for v in block.iter_vars]
    found = False

    def has_place(expr: Any) -> bool:
        if isinstance(expr, ir.TensorLoad):
            return False
        if isinstance(expr, tirx.Var):
            return any(expr.same_as(v) for v in variables)
        inner = [getattr(expr, name) for name in _OPERANDS if hasattr(expr, name)]
        return any(map(has_place, [*inner, *getattr(expr, "args", [])]))

    def visit(test: Any) -> None:
        nonlocal found
        found = found or has_place(test.a) or has_place(test.b)

    for kind in _COMPARISONS:
        tvm_ffi.structural_walk(block.body, (kind, visit))
    return found
