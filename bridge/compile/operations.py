"""How much a kernel computes: the vector instructions' worth of arithmetic in one call, for a roofline.

An operation is one arithmetic instruction on one float32: a sum, a product (with a sum or without: a fused one is one),
a comparison, a selection; on a float64 it is two, since a vector has half as many. Elementary functions count the
instructions of their LLVM IR. Indices, loads, stores and loops count nothing, so a kernel never computes less.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, s_tir, tirx

from . import intrinsics

_ARITHMETIC = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max, tirx.EQ,
    tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.And, tirx.Or,
)  # fmt: skip


class _Unknown(Exception):
    """The number of steps of a loop is not known before the kernel runs."""


def operations(function: tirx.PrimFunc) -> int | None:
    """The operations of one call; None where a loop's steps are not known (symbolic sizes, or data)."""
    try:
        return _of_statement(function.body)
    except _Unknown:
        return None


def _of_statement(node: Any) -> int:
    if isinstance(node, tirx.SeqStmt):
        return sum(map(_of_statement, node.seq))
    if isinstance(node, tirx.For):
        if not isinstance(node.extent, tirx.IntImm):
            raise _Unknown
        return int(node.extent) * _of_statement(node.body)
    if isinstance(node, s_tir.SBlockRealize):
        return _of_statement(node.block.body)
    if isinstance(node, tirx.IfThenElse):
        other = 0 if node.else_case is None else _of_statement(node.else_case)
        return max(_of_statement(node.then_case), other)
    if isinstance(node, tirx.While):
        raise _Unknown
    if hasattr(node, "body"):  # allocations and attributes
        return _of_statement(node.body)
    return _of_value(node.value) if hasattr(node, "value") else 0


def _of_value(value: Any) -> int:
    """The operations of an expression; what stands in an index counts nothing."""
    if isinstance(value, ir.TensorLoad):
        return 0
    if isinstance(value, ir.Call):
        name = getattr(value.op, "name", "")
        own = intrinsics.instructions(name) or _width(value)
        return own + sum(_of_value(a) for a in value.args if isinstance(a, ir.Expr))
    if isinstance(value, tirx.Select):
        return _width(value) + sum(map(_of_value, (value.condition, value.true_value, value.false_value)))
    if isinstance(value, tirx.Mul) and isinstance(value.b, tirx.FloatImm) and float(value.b) == -1.0:
        return _of_value(value.a)  # half of a difference: see subtraction.py
    if isinstance(value, _ARITHMETIC):
        return _width(value.a) + _of_value(value.a) + _of_value(value.b)
    if hasattr(value, "value") and isinstance(value.value, ir.Expr):  # casts and broadcasts
        return _of_value(value.value)
    return 0


def _width(value: Any) -> int:
    """Operations of one instruction on an element of this value's dtype."""
    dtype = str(value.ty.dtype) if hasattr(value.ty, "dtype") else ""
    return 2 if dtype.startswith(("float64", "int64", "uint64")) else 1
