# SPDX-License-Identifier: Apache-2.0
"""Gathers and scatters. Indices come checked (compute/checks.py): in range, not negative, int64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from ...attributes import INDEPENDENT
from .layout import broadcast_index
from .pointwise import number
from .program import Cell


def take_rows(table: te.Tensor, index: te.Tensor) -> te.Tensor:
    """`table[index]` along dim 0: shape index.shape + table.shape[1:]."""
    rank = len(index.shape)
    shape = [*index.shape, *table.shape[1:]]
    return te.compute(tuple(shape), lambda *i: table(index(*i[:rank]), *i[rank:]), name="take_rows")


def index_select(x: te.Tensor, dim: int, index: te.Tensor) -> te.Tensor:
    """`x.index_select(dim, index)`; a 0-d `x` counts as one element and stays 0-d."""
    if not x.shape:
        return te.compute((), lambda: x(), name="index_select")
    shape = [index.shape[0] if index.shape and d == dim else s for d, s in enumerate(x.shape)]
    if not index.shape:
        shape[dim] = tirx.const(1, "int64")
    return te.compute(
        tuple(shape),
        lambda *i: x(*[(index(k) if index.shape else index()) if d == dim else k for d, k in enumerate(i)]),
        name="index_select",
    )


def gather(x: te.Tensor, dim: int, index: te.Tensor) -> te.Tensor:
    """`x.gather(dim, index)`."""
    if not index.shape:
        return te.compute(index.shape, lambda: x(*[index()] * len(x.shape)), name="gather")
    if not x.shape:
        return te.compute(index.shape, lambda *_: x(), name="gather")
    return te.compute(
        index.shape, lambda *i: x(*[index(*i) if d == dim else k for d, k in enumerate(i)]), name="gather"
    )


def advanced_index(
    x: te.Tensor, indices: Sequence[te.Tensor | None], shape: Sequence[Any], broadcast: Sequence[Any]
) -> te.Tensor:
    """`x[indices]` with index tensors broadcast to shape `broadcast`; None takes the whole dim.

    The indexed dims go to the front, or where they stood when they are adjacent (NumPy's rule, at::index).
    """
    positions = [d for d, t in enumerate(indices) if t is not None]
    adjacent = positions == list(range(positions[0], positions[-1] + 1))
    at = positions[0] if adjacent else 0
    count = len(broadcast)

    def element(*i: Any) -> Any:
        shared = i[at : at + count]
        rest = iter([*i[:at], *i[at + count :]])
        source = []
        for d in range(len(x.shape)):
            t = indices[d] if d < len(indices) else None
            source.append(next(rest) if t is None else t(*broadcast_index(shared, t.shape)))
        return x(*source)

    return te.compute(tuple(shape), element, name="index")


Update = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class zeros:
    """A base of zeros for `serial_update`, which is filled and not copied."""

    shape: Sequence[Any]
    dtype: str


def serial_update(
    base: te.Tensor | zeros,
    inputs: Sequence[te.Tensor],
    extent: Sequence[Any],
    where: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
    value: Callable[[Sequence[Any], Sequence[Any]], Any],
    update: Update,
    name: str = "scatter",
) -> te.Tensor:
    """A copy of `base` where `out[at] = update(out[at], value(i))` with at = where(i), for each i of `extent` in order.

    `where` and `value` get (loads, i): loads[k](*index) reads input k. Serial, so that repeated positions are defined:
    the last write wins, sums add in order (as ATen's CPU kernels do).
    """

    filled = isinstance(base, zeros)

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        reads, target = ins if filled else ins[1:], outs[0]
        loads = [lambda *i, b=b: tirx.BufferLoad(b, list(i)) for b in reads]
        copy: list[Any] = []
        with IRBuilder() as builder, loops(target.shape, copy, independent=True):
            start = number(0, str(base.dtype)) if filled else tirx.BufferLoad(ins[0], copy)
            T.buffer_store(target, start, copy)
        index: list[Any] = []
        with IRBuilder() as updates, loops(extent, index):
            position = list(where(loads, index))
            T.buffer_store(target, update(tirx.BufferLoad(target, position), value(loads, index)), position)
        return tirx.stmt_seq(builder.get(), updates.get())

    tensors = list(inputs) if filled else [base, *inputs]
    return te.extern([tuple(base.shape)], tensors, body, name=name, dtype=str(base.dtype))


class loops:
    """Nested serial loops over a shape; the loop variables are appended to `index`.

    Over no dims it is one loop of one round, with no variable: a builder holds a single statement at its top.
    `independent`: whether no round depends on another.
    """

    def __init__(self, shape: Sequence[Any], index: list[Any], independent: bool = False):
        self._shape, self._index = shape, index
        self._outermost = {INDEPENDENT: len(shape)} if independent else {}
        self._frames: list[Any] = []

    def __enter__(self) -> None:
        for size in self._shape:
            frame = T.serial(0, size, annotations={} if self._frames else self._outermost)
            self._index.append(frame.__enter__())
            self._frames.append(frame)
        if not self._shape:
            frame = T.serial(0, 1)
            frame.__enter__()
            self._frames.append(frame)

    def __exit__(self, *_: Any) -> None:
        for frame in reversed(self._frames):
            frame.__exit__(None, None, None)


def triangle_indices(rows: Any, columns: Any, offset: Any, shape: Sequence[Any], upper: bool, dtype: str) -> te.Tensor:
    """[2, N]: row and column of each element of a [rows, columns] matrix on and above (below) diagonal `offset`."""

    def body(_: Sequence[Any], outs: Sequence[Any]) -> Any:
        zero = tirx.const(0, "int64")
        with IRBuilder() as builder, T.serial(0, tirx.const(1, "int64")):
            found = Cell(zero)
            at: list[Any] = []
            with loops([zero + rows, zero + columns], at):
                row, column = at
                inside = column >= row + offset if upper else column <= row + offset
                with T.If(inside), T.Then():
                    count = found.get()
                    T.buffer_store(outs[0], row.astype(dtype), [zero, count])
                    T.buffer_store(outs[0], column.astype(dtype), [zero + 1, count])
                    found.set(count + 1)
        return builder.get()

    return te.extern([tuple(shape)], [], body, name="triangle", dtype=dtype)
