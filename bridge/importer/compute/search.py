# SPDX-License-Identifier: Apache-2.0
"""Binary search in sorted rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from . import pointwise as pw
from .index import loops
from .layout import const
from .program import Cell
from .reduce import cast_all

#: No row has 2**40 elements.
_STEPS = 40


def insertion_points(boundaries: te.Tensor, x: te.Tensor, right: bool, dtype: str) -> te.Tensor:
    """Where each element of `x` belongs among `boundaries` (one row for all, or one row for each row of `x`).

    The first place whose boundary is not smaller; `right`: the first whose boundary is larger. A NaN comes last.
    """
    one_row = len(boundaries.shape) == 1

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        (rows, values), target = ins, outs[0]
        with IRBuilder() as builder:
            index: list[Any] = []
            with loops(values.shape, index, independent=True):
                low, high = Cell(const(0)), Cell(const(0) + rows.shape[-1])
                with T.serial(0, const(_STEPS)) as _:
                    a, b = low.get(), high.get()
                    with T.If(a < b), T.Then():
                        middle = tirx.floordiv(a + b, const(2))
                        at = [middle] if one_row else [*index[:-1], middle]
                        boundary, value = tirx.BufferLoad(rows, at), tirx.BufferLoad(values, index)
                        # Not the negation of `boundary >= value`, which TVM turns into `<`, for NaN as well.
                        below = boundary <= value if right else boundary < value
                        with T.If(tirx.any(below, pw.isnan(value))):
                            with T.Then():
                                low.set(middle + 1)
                            with T.Else():
                                high.set(middle)
                T.buffer_store(target, low.get(), index)
        return builder.get()

    found = te.extern([x.shape], [boundaries, x], body, name="search", dtype="int64")
    return cast_all(found, dtype)
