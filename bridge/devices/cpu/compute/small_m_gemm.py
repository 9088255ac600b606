# SPDX-License-Identifier: Apache-2.0
"""Matrix products of few rows, as a recurrent layer has one each step: generated code instead of the BLAS.

A product of 8 rows reads each element of its right-hand matrix for 16 operations. MKL packs that matrix first and then
computes with it at 31 to 62 GFLOP/s on a core that does 110. Here nothing is packed: a block of the result's columns is
kept in vector registers, for up to 8 rows, while the right-hand matrix's rows go by once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from ....importer.compute.layout import const, is_one, unflatten
from ....importer.compute.pointwise import cast, number
from ....importer.compute.program import Program
from ..blas import FEWEST_COLUMNS, SMALL_M
from .gemm import Matrix

#: Elements of a vector. A narrower CPU takes each in parts.
LANES = 16
#: Vectors of a block's row: with 8 rows, 24 sums of AVX-512's 32 registers, or 16 of them.
WIDTHS = (3, 2)
#: Rows of a block.
GROUP = 8
#: Terms that are added up before their sum is added to the others': the longer of the two makes the rounding error.
CHUNK = 256
#: Below this many multiplications a parallel loop costs more than it gives.
PARALLEL = 1 << 19


def fits(lhs: Matrix, rhs: Matrix, left_shape: Sequence[Any], right_shape: Sequence[Any], dtype: str) -> bool:
    """Whether `product` takes these: float32, static sizes, both row-major in matrices of at least their width."""
    sizes = (lhs.rows, lhs.columns, rhs.columns, *(n for m in (lhs, rhs) for n in (m.leading, m.offset)))
    if dtype != "float32" or lhs.transposed or rhs.transposed:
        return False
    if not all(isinstance(n, int | tirx.IntImm) for n in (*sizes, *left_shape, *right_shape)):
        return False
    if int(lhs.rows) not in SMALL_M or int(rhs.columns) < FEWEST_COLUMNS:
        return False
    if not all(is_one(size) for size in right_shape[:-2]):  # the loop over its rows would divide for each index
        return False
    return _in_rows(lhs, left_shape) and _in_rows(rhs, right_shape)


def _in_rows(operand: Matrix, shape: Sequence[Any]) -> bool:
    """Whether a row of the operand lies in one row, along the last dim, of the tensor that holds it."""
    length = int(shape[-1]) if len(shape) > 1 else 0
    step, offset, columns = int(operand.leading), int(operand.offset), int(operand.columns)
    return length > 0 and step % length == 0 and offset % length + columns <= length


def product(
    a: te.Tensor, b: te.Tensor, lhs: Matrix, rhs: Matrix, *, alpha: float = 1.0, start: te.Tensor | None = None
) -> te.Tensor:
    """`alpha * lhs @ rhs`, plus `start` (broadcast to the result) where given: a float32 (rows, columns) tensor.

    Each element is a sum of the sums of CHUNK terms each, in float32.
    """
    rows, inner, columns = int(lhs.rows), int(lhs.columns), int(rhs.columns)
    width = min(WIDTHS, key=lambda w: -(-columns // (w * LANES)) * w)
    block = width * LANES
    places = [_lanes(const(v * LANES)) for v in range(width)]

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        left, right, out = ins[0], ins[1], outs[0]

        def block_of(group: Sequence[int], first: Any, program: Program) -> None:
            """The rows `group` of the result in the columns from `first` on."""
            totals, sums = ([T.alloc_buffer((block,), "float32", scope="global") for _ in group] for _ in "ts")
            _clear(totals, places)
            with T.serial(0, const(-(-inner // CHUNK))) as chunk:
                begin = program.let(chunk * const(CHUNK))
                _clear(sums, places)
                with T.serial(0, tirx.min(const(CHUNK), const(inner) - begin)) as n:
                    k = begin + n
                    factors = [T.alloc_buffer((LANES,), "float32", scope="global") for _ in range(width)]
                    for v, factor in enumerate(factors):
                        value = tirx.BufferLoad(right, _at(rhs, right, k, first + const(v * LANES), lanes=True))
                        T.buffer_store(factor, value, [_lanes(const(0))])
                    for i, row in zip(group, sums, strict=True):
                        scale = _spread(tirx.BufferLoad(left, _at(lhs, left, const(i), k)))
                        for place, factor in zip(places, factors, strict=True):
                            _add(row, place, scale * tirx.BufferLoad(factor, [_lanes(const(0))]))
                for total, row in zip(totals, sums, strict=True):
                    for place in places:
                        _add(total, place, tirx.BufferLoad(row, [place]))
            for i, row in zip(group, totals, strict=True):
                for v, place in enumerate(places):
                    value = tirx.BufferLoad(row, [place])
                    if alpha != 1:
                        value = value * _spread(number(alpha, "float32"))
                    column = first + const(v * LANES)
                    if start is not None:
                        value = value + _start(ins[2], const(i), column)
                    T.buffer_store(out, value, [const(i), _lanes(column)])

        loop = T.parallel if rows * inner * columns >= PARALLEL else T.serial
        with IRBuilder() as builder, loop(0, const(-(-columns // block))) as j:
            program = Program()
            # The last block ends where the columns do, and computes some of them a second time.
            first = program.let(tirx.min(j * const(block), const(columns - block)))
            for group in _groups(rows):
                block_of(group, first, program)
        return builder.get()

    inputs = [a, b] if start is None else [a, b, start]
    return te.extern([(lhs.rows, rhs.columns)], inputs, body, name="small_m_gemm", dtype="float32")


def _groups(rows: int) -> list[range]:
    """The rows in as few groups of nearly the same size as the registers allow."""
    count = -(-rows // GROUP)
    ends = [rows * n // count for n in range(count + 1)]
    return [range(*pair) for pair in itertools.pairwise(ends)]


def _clear(rows: Sequence[Any], places: Sequence[Any]) -> None:
    for row in rows:
        for place in places:
            T.buffer_store(row, _spread(number(0, "float32")), [place])


def _add(row: Any, place: Any, value: Any) -> None:
    T.buffer_store(row, tirx.BufferLoad(row, [place]) + value, [place])


def _lanes(start: Any) -> Any:
    return tirx.Ramp(start, const(1), LANES)


def _spread(value: Any) -> Any:
    return tirx.Broadcast(value, LANES)


def _at(operand: Matrix, buffer: Any, row: Any, column: Any, lanes: bool = False) -> list[Any]:
    """The index of an element, or of the vector from it on, in the tensor that holds the operand."""
    length = int(buffer.shape[-1])
    down, across = divmod(int(operand.offset), length)
    row = row * const(int(operand.leading) // length) + const(down)
    column = column + const(across)
    return [*unflatten(row, buffer.shape[:-1]), _lanes(column) if lanes else column]


def _start(buffer: Any, row: Any, column: Any) -> Any:
    """A vector of what the sum starts from, which is broadcast to the result."""
    index = [const(0) if is_one(size) else at for size, at in zip(buffer.shape[::-1], (column, row), strict=False)]
    if not index or is_one(buffer.shape[-1]):
        return _spread(cast(tirx.BufferLoad(buffer, index[::-1]), "float32"))
    return tirx.BufferLoad(buffer, [*index[:0:-1], _lanes(index[0])])
