# SPDX-License-Identifier: Apache-2.0
"""How much a kernel computes: the vector instructions' worth of arithmetic in one call, for a roofline.

An operation is one arithmetic instruction on one float32: a sum, a product (with a sum or without: a fused one is one),
a comparison, a selection; on a float64 it is two, since a vector has half as many. Elementary functions count the
instructions of their LLVM IR. Integers (indices, nearly all of them), loads, stores and loops count nothing, and of two
branches the shorter one counts, so a kernel never computes less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, s_tir, tirx

_ARITHMETIC = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max, tirx.EQ,
    tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.And, tirx.Or,
)  # fmt: skip


Instructions = Callable[[str], int]


class _Unknown(Exception):
    """The number of steps of a loop is not known before the kernel runs."""


def operations(function: tirx.PrimFunc, instructions: Instructions) -> int | None:
    """The operations of one call; None where a loop's steps are not known (symbolic sizes, or data).

    `instructions`: of a call of an op on float32, where the device lowers it by code of its own; 0 elsewhere.
    """
    try:
        return _Count(instructions).statement(function.body)
    except (_Unknown, RecursionError):  # an expression deeper than Python's stack: a figure must not fail a graph
        return None


class _Count:
    def __init__(self, instructions: Instructions):
        self._instructions = instructions

    def statement(self, node: Any) -> int:
        if isinstance(node, tirx.SeqStmt):
            return sum(map(self.statement, node.seq))
        if isinstance(node, tirx.For):
            if not isinstance(node.extent, tirx.IntImm):
                raise _Unknown
            return int(node.extent) * self.statement(node.body)
        if isinstance(node, s_tir.SBlockRealize):
            return self.statement(node.block.body)
        if isinstance(node, tirx.IfThenElse):
            return 0 if node.else_case is None else min(map(self.statement, (node.then_case, node.else_case)))
        if isinstance(node, tirx.While):
            raise _Unknown
        if hasattr(node, "body"):  # allocations and attributes
            return self.statement(node.body)
        return self.value(node.value) if hasattr(node, "value") else 0

    def value(self, value: Any) -> int:
        """The operations of an expression; what stands in an index counts nothing."""
        if isinstance(value, ir.TensorLoad):
            return 0
        if isinstance(value, ir.Call):
            name = getattr(value.op, "name", "")
            if name == "prim.if_then_else":  # one of them is computed, and the test is of indices
                return min(map(self.value, value.args[1:]))
            own = self._instructions(name) or _width(value)
            return own + sum(self.value(a) for a in value.args if isinstance(a, ir.Expr))
        if isinstance(value, tirx.Select):
            return _width(value) + sum(map(self.value, (value.condition, value.true_value, value.false_value)))
        below = sum(self.value(part) for part in _parts(value))
        if not isinstance(value, _ARITHMETIC) or _is_fused(value):
            return below
        return below + _width(value.a)


def _parts(value: Any) -> list[Any]:
    """The operands of an operation, a cast or a broadcast."""
    parts = [getattr(value, name) for name in ("a", "b", "value", "body") if hasattr(value, name)]
    return [part for part in parts if isinstance(part, ir.Expr)]


def _is_fused(value: Any) -> bool:
    """Whether an operation is one instruction with a product below it, or is no instruction at all."""
    if isinstance(value, tirx.Mul):
        return _is_sign(value)
    return isinstance(value, tirx.Add) and any(isinstance(t, tirx.Mul) and not _is_sign(t) for t in (value.a, value.b))


def _is_sign(product: Any) -> bool:
    """Half of a difference: see subtraction.py."""
    return isinstance(product.b, tirx.FloatImm) and float(product.b) == -1.0


def _width(value: Any) -> int:
    """Operations of one instruction on an element of this value's dtype; integers are indices, nearly all of them."""
    dtype, _, lanes = (str(value.ty.dtype) if hasattr(value.ty, "dtype") else "").partition("x")
    return (2 if dtype == "float64" else int(dtype.startswith(("float", "bfloat")))) * int(lanes or 1)
