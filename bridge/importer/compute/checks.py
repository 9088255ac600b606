# SPDX-License-Identifier: Apache-2.0
"""Kernels that check their input and raise: serial loops with an assert, returning what they checked.

An assert inside a parallel loop would be swallowed, and a check that returned nothing would be dropped as dead code:
so the check is a kernel of its own that hands its input on, and what comes after reads the checked copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from .index import loops


def _checked_copy(
    x: te.Tensor, value: Callable[[Any], Any], condition: Callable[[Any], Any], kind: str, message: str, dtype: str
) -> te.Tensor:
    """Copies `value(x[i])` element by element where `condition(x[i])` holds; else raises `kind`."""

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        source, target = ins[0], outs[0]
        at: list[Any] = []
        with IRBuilder() as builder, loops(source.shape, at, independent=True):
            element = tirx.BufferLoad(source, at)
            with T.Assert(condition(element), message, kind):
                T.buffer_store(target, value(element), at)
        return builder.get()

    return te.extern([x.shape], [x], body, name="checked", dtype=dtype)


def nonzero(x: te.Tensor) -> te.Tensor:
    """`x`, unless an element is zero: RuntimeError, as ATen raises for integer division by zero."""
    return _checked_copy(
        x,
        lambda v: v,
        lambda v: tirx.NE(v, tirx.const(0, str(x.dtype))),
        "RuntimeError",
        "ZeroDivisionError",
        str(x.dtype),
    )


def index(x: te.Tensor, size: Any, wraps: bool) -> te.Tensor:
    """int64 indices into a dim of `size` elements: IndexError if out of range. `wraps`: negative ones from the end."""

    zero = tirx.const(0, "int64")

    def wide(v: Any) -> Any:
        return v.astype("int64")

    return _checked_copy(
        x,
        lambda v: tirx.Select(wide(v) < 0, wide(v) + size, wide(v)) if wraps else wide(v),
        lambda v: tirx.all(wide(v) >= (zero - size if wraps else zero), wide(v) < size),
        "IndexError",
        "index out of range",
        "int64",
    )


def at_most(x: te.Tensor, limit: Any) -> te.Tensor:
    """`x`, unless an element is larger than `limit`: RuntimeError, as of ATen's masked_scatter."""
    return _checked_copy(
        x,
        lambda v: v,
        lambda v: v <= tirx.const(0, "int64") + limit,
        "RuntimeError",
        "the mask has more true elements than there are values",
        str(x.dtype),
    )
