# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolution over two dims: each channel with a filter of its own, and both gradients.

A general convolution kernel has no matrix product to win on here; ATen's gradients took ten times a vector loop's time.

Note [Planes in phases]
A plane (one channel of one sample) is first copied into a small buffer with its padding, sorted by phase: with a stride
of s, the padded columns j of equal `j % s` lie side by side, and so do the rows. Element (y, x) of the output then
reads, for tap (r, c) of the filter, place `offset(r, c) + y * pitch + x`: one run of the buffer for the whole plane,
whatever stride and dilation are. The run goes over the ends of the rows and computes a few elements that are no
element of the output; they are left out when the result is stored, or masked where they would be summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from ....importer.compute.layout import const
from ....importer.compute.pointwise import number
from ....importer.compute.window import Axis, divided

Expr = Any

#: Elements of a vector, and vectors that are summed side by side.
LANES = 16
SIDE_BY_SIDE = 4
#: Columns of the filter whose sums are kept side by side in the gradient of the filter.
COLUMNS = 8


class _Plane:
    """The layout of one plane's buffer: see Note [Planes in phases]."""

    def __init__(self, rows: Axis, columns: Axis):
        self.rows, self.columns = rows, columns
        self.pitch = columns.places
        self.phase = rows.places * self.pitch
        self.length = (rows.count - 1) * self.pitch + columns.count  # of the run
        vectors = -(-self.length // LANES)
        self.group = min(SIDE_BY_SIDE, vectors)
        self.groups = -(-vectors // self.group)
        self.padded = self.groups * self.group * LANES
        self.elements = rows.stride * columns.stride * self.phase + self.padded - self.length

    def offset(self, row: Expr, column: int) -> Expr:
        """Where the run of tap (row, column) starts."""
        (row_phase, row_place), (column_phase, column_place) = self.rows.tap(row), self.columns.tap(const(column))
        return self._place(row_phase, column_phase, row_place, column_place)

    def _place(self, row_phase: Expr, column_phase: Expr, row: Expr, column: Expr) -> Expr:
        phase = row_phase * const(self.columns.stride) + column_phase
        return phase * const(self.phase) + row * const(self.pitch) + column

    def fill(self, buffer: Any, source: Any, at: Sequence[Expr]) -> None:
        """Copies the plane `source[at]` with zeros around it."""
        dtype = str(buffer.dtype)
        with T.serial(0, self.elements) as i:
            T.buffer_store(buffer, number(0, dtype), [i])
        (top, bottom), (left, right) = self.rows.copied, self.columns.copied
        if top >= bottom or left >= right:
            return
        with T.serial(top, bottom) as y, T.serial(left, right) as x:
            r, c = y + const(self.rows.padding), x + const(self.columns.padding)
            (row_phase, row), (column_phase, column) = divided(r, self.rows.stride), divided(c, self.columns.stride)
            place = self._place(row_phase, column_phase, row, column)
            T.buffer_store(buffer, tirx.BufferLoad(source, [*at, y, x]), [place])


def buffer_bytes(rows: Axis, columns: Axis, itemsize: int) -> int:
    """Size of one plane's buffer."""
    return _Plane(rows, columns).elements * itemsize


def convolution(x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None, rows: Axis, columns: Axis) -> te.Tensor:
    """[N, C, rows, columns]: each channel of `x` [N, C, H, W] with its filter of `weight` [C, 1, kh, kw]."""

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        return _slide(ins[0], ins[1], ins[2] if bias is not None else None, outs[0], rows, columns, turned=False)

    tensors = [x, weight] if bias is None else [x, weight, bias]
    return _extern((x.shape[0], x.shape[1], rows.count, columns.count), tensors, body, "depthwise", str(x.dtype))


def input_gradient(grad: te.Tensor, weight: te.Tensor, rows: Axis, columns: Axis) -> te.Tensor:
    """[N, C, H, W]: the gradient of `convolution` for `x`, from `grad` [N, C, rows, columns]; strides of one."""
    shape = (grad.shape[0], grad.shape[1], rows.size, columns.size)

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        return _slide(ins[0], ins[1], None, outs[0], rows.transposed(), columns.transposed(), turned=True)

    return _extern(shape, [grad, weight], body, "depthwise_input_gradient", str(grad.dtype))


def _slide(x: Any, weight: Any, bias: Any, out: Any, rows: Axis, columns: Axis, *, turned: bool) -> Any:
    """The loops of `convolution`, with the filter turned round or not."""
    plane = _Plane(rows, columns)
    dtype = str(out.dtype)
    with IRBuilder() as builder, T.parallel(0, const(0) + x.shape[0] * x.shape[1]) as job:
        n, c = tirx.floordiv(job, x.shape[1]), tirx.floormod(job, x.shape[1])
        padded = T.alloc_buffer((plane.elements,), dtype, scope="global")
        run = T.alloc_buffer((plane.padded,), dtype, scope="global")
        plane.fill(padded, x, [n, c])
        with T.serial(0, plane.groups) as group:
            start = group * const(plane.group * LANES)
            sums = [T.alloc_buffer((LANES,), dtype, scope="global") for _ in range(plane.group)]
            for total in sums:
                with _vector() as lane:
                    T.buffer_store(total, number(0, dtype) if bias is None else tirx.BufferLoad(bias, [c]), [lane])
            with T.serial(0, rows.kernel) as r:
                for k in range(columns.kernel):
                    place = (const(rows.kernel - 1) - r, const(columns.kernel - 1 - k)) if turned else (r, const(k))
                    tap = tirx.BufferLoad(weight, [c, const(0), *place])
                    for i, total in enumerate(sums):
                        with _vector() as lane:
                            at = start + plane.offset(r, k) + const(i * LANES) + lane
                            value = tirx.BufferLoad(total, [lane]) + tirx.BufferLoad(padded, [at]) * tap
                            T.buffer_store(total, value, [lane])
            for i, total in enumerate(sums):
                with _vector() as lane:
                    T.buffer_store(run, tirx.BufferLoad(total, [lane]), [start + const(i * LANES) + lane])
        with T.serial(0, rows.count) as y, T.serial(0, columns.count) as z:
            T.buffer_store(out, tirx.BufferLoad(run, [y * const(plane.pitch) + z]), [n, c, y, z])
    return builder.get()


def weight_gradient(grad: te.Tensor, x: te.Tensor, rows: Axis, columns: Axis) -> te.Tensor:
    """[C, 1, kh, kw]: the gradient of `convolution` for the filters."""
    plane = _Plane(rows, columns)
    dtype = str(grad.dtype)
    kernel = rows.kernel, columns.kernel
    vectors = plane.padded // LANES

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        with IRBuilder() as builder, T.parallel(0, const(0) + x.shape[1]) as c:
            padded = T.alloc_buffer((plane.elements,), dtype, scope="global")
            given = T.alloc_buffer((plane.padded,), dtype, scope="global")
            sums = T.alloc_buffer((kernel[0] * kernel[1] * LANES,), dtype, scope="global")
            with T.serial(0, kernel[0] * kernel[1] * LANES) as i:
                T.buffer_store(sums, number(0, dtype), [i])
            with T.serial(0, plane.padded) as i:
                T.buffer_store(given, number(0, dtype), [i])
            with T.serial(0, const(0) + x.shape[0]) as n:
                plane.fill(padded, ins[1], [n, c])
                with T.serial(0, rows.count) as y, T.serial(0, columns.count) as z:
                    T.buffer_store(given, tirx.BufferLoad(ins[0], [n, c, y, z]), [y * const(plane.pitch) + z])
                with T.serial(0, kernel[0]) as r:
                    for first in range(0, kernel[1], COLUMNS):
                        _dot_products(padded, given, sums, r, range(first, min(first + COLUMNS, kernel[1])))
            with T.serial(0, kernel[0]) as r, T.serial(0, kernel[1]) as k:
                tap = (r * const(kernel[1]) + k) * const(LANES)
                total = T.alloc_buffer((1,), dtype, scope="global")
                T.buffer_store(total, number(0, dtype), [const(0)])
                with T.serial(0, LANES) as lane:
                    value = tirx.BufferLoad(total, [const(0)]) + tirx.BufferLoad(sums, [tap + lane])
                    T.buffer_store(total, value, [const(0)])
                T.buffer_store(outs[0], tirx.BufferLoad(total, [const(0)]), [c, const(0), r, k])
        return builder.get()

    def _dot_products(padded: Any, given: Any, sums: Any, r: Expr, taps: range) -> None:
        """Adds, lane by lane, the products of the run of each of these taps with the gradient's."""
        totals = [T.alloc_buffer((LANES,), dtype, scope="global") for _ in taps]
        for k, total in zip(taps, totals, strict=True):
            with _vector() as lane:
                place = (r * const(kernel[1]) + const(k)) * const(LANES) + lane
                T.buffer_store(total, tirx.BufferLoad(sums, [place]), [lane])
        with T.serial(0, vectors) as vector:
            for k, total in zip(taps, totals, strict=True):
                with _vector() as lane:
                    at = vector * const(LANES) + lane
                    value = tirx.BufferLoad(padded, [at + plane.offset(r, k)])
                    # Past the end of a row lies another element, or nothing: infinity times zero is no zero.
                    inside = tirx.floormod(at, const(plane.pitch)) < const(columns.count)
                    value = value if plane.pitch == columns.count else tirx.Select(inside, value, number(0, dtype))
                    value = tirx.BufferLoad(total, [lane]) + value * tirx.BufferLoad(given, [at])
                    T.buffer_store(total, value, [lane])
        for k, total in zip(taps, totals, strict=True):
            with _vector() as lane:
                place = (r * const(kernel[1]) + const(k)) * const(LANES) + lane
                T.buffer_store(sums, tirx.BufferLoad(total, [lane]), [place])

    return _extern((x.shape[1], 1, *kernel), [grad, x], body, "depthwise_weight_gradient", dtype)


def _vector() -> Any:
    """The loop over the lanes of one vector."""
    return T.vectorized(0, LANES)


def _extern(shape: Sequence[Any], tensors: Sequence[Any], body: Any, name: str, dtype: str) -> te.Tensor:
    return te.extern([tuple(const(0) + s for s in shape)], list(tensors), body, name=name, dtype=dtype)
