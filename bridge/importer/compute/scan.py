# SPDX-License-Identifier: Apache-2.0
"""Scans along a dim: serial, each element from the one before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from . import pointwise as pw
from .index import loops
from .layout import const


def scan(x: te.Tensor, dim: int, combine: Callable[[Any, Any], Any], dtype: str) -> te.Tensor:
    """out[i] = combine(out[i-1], x[i]) along `dim`, in `dtype`."""

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        source, target = ins[0], outs[0]
        others = [s for d, s in enumerate(source.shape) if d != dim]
        with IRBuilder() as builder:
            index: list[Any] = []
            with loops(others, index), T.serial(0, source.shape[dim]) as k:
                at = [*index[:dim], k, *index[dim:]]
                value = pw.cast(tirx.BufferLoad(source, at), dtype)
                with T.If(tirx.EQ(k, const(0))):
                    with T.Then():
                        T.buffer_store(target, value, at)
                    with T.Else():
                        before = [*index[:dim], k - 1, *index[dim:]]
                        T.buffer_store(target, combine(tirx.BufferLoad(target, before), value), at)
        return builder.get()

    return te.extern([x.shape], [x], body, name="scan", dtype=dtype)


def log_add_exp(a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b)), without overflow; infinite terms of one sign stay as they are (ATen's LogAddExp.h)."""
    low, high = pw.minimum(a, b), pw.maximum(a, b)
    same = tirx.all(tirx.EQ(low, high), pw.isinf(low))
    return tirx.Select(same, b, tirx.log1p(tirx.exp(low - high)) + high)


def scan_extreme(x: te.Tensor, dim: int, largest: bool) -> list[te.Tensor]:
    """[running maximum (minimum) along `dim`, int64 index of it]: the last of equal ones; once NaN, the last NaN."""

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        source, best, where = ins[0], *outs
        others = [s for d, s in enumerate(source.shape) if d != dim]
        with IRBuilder() as builder:
            row: list[Any] = []
            with loops(others, row), T.serial(0, source.shape[dim]) as k:
                at = [*row[:dim], k, *row[dim:]]
                # The first element is compared with itself, and wins.
                before = [*row[:dim], tirx.max(k - 1, const(0)), *row[dim:]]
                value = tirx.BufferLoad(source, at)
                with T.If(tirx.EQ(k, const(0))), T.Then():
                    T.buffer_store(best, value, at)
                old = tirx.BufferLoad(best, before)
                wins = value >= old if largest else value <= old
                if pw.is_float(value):
                    wins = tirx.any(pw.isnan(value), tirx.all(tirx.Not(pw.isnan(old)), wins))
                with T.If(wins):
                    with T.Then():
                        T.buffer_store(where, k, at)
                        T.buffer_store(best, value, at)
                    with T.Else():
                        T.buffer_store(where, tirx.BufferLoad(where, before), at)
                        T.buffer_store(best, tirx.BufferLoad(best, before), at)
        return builder.get()

    return list(te.extern([x.shape, x.shape], [x], body, name="scan_extreme", dtype=[str(x.dtype), "int64"]))
