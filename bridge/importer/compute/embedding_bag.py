# SPDX-License-Identifier: Apache-2.0
"""Embedding bags: the gradient of the table, which ATen makes with a call for each row of each bag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from .index import loops
from .layout import const
from .pointwise import cast, number
from .program import Program


def gradient(
    grad: te.Tensor,
    indices: te.Tensor,
    offsets: te.Tensor,
    rows: Any,
    padding: int,
    sizes: te.Tensor | None,
    weights: te.Tensor | None,
) -> te.Tensor:
    """[rows, width]: the sum over all bags b, and i in [offsets[b], offsets[b + 1]), of grad[b] at row indices[i].

    `grad` is [bags, width]; the last bag ends with `indices` where no offset follows it; row `padding` stays zero.
    `sizes` [bags]: divides each bag's gradient (means). `weights`, like `indices`: a factor of each entry.
    """
    dtype, width = str(grad.dtype), grad.shape[1]
    extra = [t for t in (sizes, weights) if t is not None]

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        g, entries, starts, *rest = ins
        divisors = rest.pop(0) if sizes is not None else None
        factors = rest.pop(0) if weights is not None else None
        start: list[Any] = []
        out = outs[0]
        with IRBuilder() as fill, loops(out.shape, start, independent=True):
            T.buffer_store(out, number(0, dtype), start)
        with IRBuilder() as sums, T.serial(0, g.shape[0]) as bag:
            program = Program()
            count = const(0) + entries.shape[0]

            def place(at: Any) -> Any:
                """An offset, which must not lead out of the entries."""
                return tirx.max(tirx.min(cast(tirx.BufferLoad(starts, [at]), "int64"), count), const(0))

            first = program.let(place(bag))
            end = program.cell(count)
            with program.when(bag + const(1) < starts.shape[0]):
                end.set(place(bag + const(1)))
            with T.serial(0, tirx.max(end.get() - first, const(0))) as step:
                entry = first + step
                row = program.let(tirx.BufferLoad(entries, [entry]))
                factor = number(1, dtype)
                if divisors is not None:
                    size = cast(tirx.BufferLoad(divisors, [bag]), dtype)
                    factor = factor / tirx.max(size, number(1, dtype))
                if factors is not None:
                    factor = factor * cast(tirx.BufferLoad(factors, [entry]), dtype)
                factor = program.let(factor)
                with program.when(tirx.NE(row, const(padding))), T.serial(0, width) as column:
                    term = tirx.BufferLoad(g, [bag, column]) * factor
                    T.buffer_store(out, tirx.BufferLoad(out, [row, column]) + term, [row, column])
        return tirx.stmt_seq(fill.get(), sums.get())

    return te.extern([(rows, width)], [grad, indices, offsets, *extra], body, name="bags_gradient", dtype=dtype)
