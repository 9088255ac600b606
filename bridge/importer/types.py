# SPDX-License-Identifier: Apache-2.0
"""FakeTensor -> Relax type, SymInt -> tirx expression, and memory layouts read off a FakeTensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
import tvm
from tvm import tirx

from .. import torch_api
from ..device import Device

#: torch dtypes that TVM tensors can carry here; values of any other dtype stay opaque (ATen only).
DTYPES: dict[torch.dtype, str] = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.bool: "bool",
}

HALVES = ("float16", "bfloat16")

#: A size: a Python int, or a tirx expression over the symbols of the graph.
Dim = Any


def is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def opmath(dtype: str) -> str:
    """The dtype in which ATen computes on `dtype` (at::opmath_type): float32 for the halves."""
    return "float32" if dtype in HALVES else dtype


class UnsupportedSize(Exception):
    """A symbolic size that cannot be written as a tirx expression, or is unknown before the graph runs."""


class Symbols:
    """The symbols of one graph: sympy symbol <-> tirx variable (int64)."""

    def __init__(self) -> None:
        self.vars: dict[sympy.Symbol, tirx.Var] = {}
        self._analyzer = tvm.sym.Analyzer()

    def var(self, symbol: sympy.Symbol) -> tirx.Var:
        if symbol not in self.vars:
            if torch_api.is_unbacked(symbol):
                raise UnsupportedSize(f"size {symbol} is known only while the graph runs")
            self.vars[symbol] = tirx.Var(str(symbol), "int64")
        return self.vars[symbol]

    def dim(self, size: Any) -> Dim:
        """An int, SymInt or sympy expression as an int or a tirx int64 expression."""
        if isinstance(size, int):
            return int(size)
        expr = size if isinstance(size, sympy.Expr) else torch_api.expr_of(size)
        if isinstance(expr, int) or expr.is_Integer:
            return int(expr)
        return self._convert(expr)

    def dims(self, sizes: Sequence[Any]) -> list[Dim]:
        return [self.dim(s) for s in sizes]

    def _convert(self, expr: sympy.Expr) -> Any:
        if expr.is_Integer:
            return tirx.const(int(expr), "int64")
        if isinstance(expr, sympy.Symbol):
            return self.var(expr)
        args = [self._convert(a) for a in expr.args]
        name = type(expr).__name__
        if isinstance(expr, sympy.Add):
            return _fold(args, lambda a, b: a + b)
        if isinstance(expr, sympy.Mul):
            return _fold(args, lambda a, b: a * b)
        if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and expr.exp >= 0:
            return _fold([args[0]] * int(expr.exp), lambda a, b: a * b) if expr.exp > 0 else tirx.const(1, "int64")
        if name in ("FloorDiv", "CleanDiv", "IntTrueDiv"):
            if name == "IntTrueDiv":
                raise UnsupportedSize(f"size {expr} is a fraction")
            return tirx.floordiv(args[0], args[1])
        if name in ("CeilToInt", "CeilDiv") and len(args) == 2:
            return tirx.floordiv(args[0] + args[1] - 1, args[1])
        if name == "ModularIndexing":
            return tirx.floormod(tirx.floordiv(args[0], args[1]), args[2])
        if name in ("Mod", "PythonMod"):
            return tirx.floormod(args[0], args[1])
        if name in ("Max",) or isinstance(expr, sympy.Max):
            return _fold(args, tirx.max)
        if name in ("Min",) or isinstance(expr, sympy.Min):
            return _fold(args, tirx.min)
        raise UnsupportedSize(f"size {expr} ({name}) has no tirx form")

    def equal(self, a: Dim, b: Dim) -> bool:
        """Whether two sizes are proven equal for all values of the symbols."""
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        if isinstance(a, tirx.IntImm) and isinstance(b, int | tirx.IntImm):
            return int(a) == int(b)
        return bool(self._analyzer.can_prove_equal(_as_expr(a), _as_expr(b)))

    def non_negative(self, size: Dim) -> bool:
        """Whether a number is proven not negative. Symbols of sizes are; those of other integers need not be."""
        if isinstance(size, int):
            return size >= 0
        for symbol, var in self.vars.items():
            if symbol.is_nonnegative:
                self._analyzer.bind(var, tvm.ir.Range(0, 1 << 40))
        return bool(self._analyzer.can_prove(size >= 0))


def _as_expr(size: Dim) -> Any:
    return tirx.const(size, "int64") if isinstance(size, int) else size


def is_empty(shape: Sequence[Dim]) -> bool:
    """Whether a tensor of this shape has no elements for all values of the symbols."""
    return any(isinstance(d, int) and d == 0 for d in shape)


def _fold(args: list[Any], op: Any) -> Any:
    result = args[0]
    for arg in args[1:]:
        result = op(result, arg)
    return result


def is_typed(value: Any, device: Device) -> bool:
    """Whether TVM can carry this value as a tensor: strided, of a known dtype, and one that the device takes."""
    return (
        isinstance(value, torch.Tensor)
        and value.dtype in DTYPES
        and value.layout == torch.strided
        and not value.is_quantized
        and device.takes(value)
    )


def dense_order(fake: torch.Tensor) -> tuple[int, ...] | None:
    """The order of dims from outermost to innermost in memory, where `fake` is dense and does not overlap; else None.

    A contiguous tensor gives (0, 1, ..., n-1). `fake.permute(order)` is then contiguous for every value of the symbols.
    """
    sizes = [torch_api.expr_of(s) for s in fake.shape]
    strides = [torch_api.expr_of(s) for s in fake.stride()]
    if any(s == 0 for s in sizes):
        return tuple(range(len(sizes)))
    contiguous: Any = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size != 1 and not _is_same(contiguous, stride):
            break
        contiguous = contiguous * size
    else:
        return tuple(range(len(sizes)))
    hints = [torch_api.hint_of(s) for s in fake.stride()]
    size_hints = [torch_api.hint_of(s) for s in fake.shape]
    # Dims of size one have strides without meaning: keep them where they stand among their neighbours.
    order = sorted(range(len(sizes)), key=lambda d: (-hints[d], -size_hints[d], d))
    expected: Any = 1
    for dim in reversed(order):
        if sizes[dim] != 1 and not _is_same(expected, strides[dim]):
            return None
        expected = expected * sizes[dim]
    return tuple(order)


def _is_same(a: Any, b: Any) -> bool:
    """Whether two sizes, numbers or sympy's expressions, are one."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(sympy.simplify(a - b) == 0)


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes `order`."""
    result = [0] * len(order)
    for position, dim in enumerate(order):
        result[dim] = position
    return tuple(result)
