# SPDX-License-Identifier: Apache-2.0
"""Matrix products as calls of the BLAS from generated code, on strided operands, without copies for transposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from ....importer.compute.index import loops
from ....importer.compute.layout import const, element_count
from ....importer.compute.pointwise import cast, number

Size = Any

#: Marks a kernel that only calls a library.
LIBRARY_CALL = {"library": True}

_PREFIX = {"float32": "s", "float64": "d"}
_ROW_MAJOR, _NO_TRANSPOSE, _TRANSPOSE = 101, 111, 112  # CBLAS_LAYOUT and CBLAS_TRANSPOSE


@dataclass(frozen=True)
class Matrix:
    """How a matrix (or each matrix of a batch) lies in the memory of a buffer: sizes and steps in elements."""

    rows: Size
    columns: Size
    transposed: bool  # columns are contiguous, not rows
    leading: Size  # distance of neighbouring rows (of columns where transposed)
    offset: Size = 0
    batch_step: Size = 0


def matrix(
    rows: Size, columns: Size, row_step: Size, column_step: Size, offset: Size = 0, batch_step: Size = 0
) -> Matrix | None:
    """The BLAS form of a strided matrix; None where neither its rows nor its columns are contiguous."""
    if _is(column_step, 1) or _is(columns, 1):
        leading = columns if _is(rows, 1) else row_step
        if _fits(leading, columns):
            return Matrix(rows, columns, False, leading, offset, batch_step)
    if _is(row_step, 1) or _is(rows, 1):
        leading = rows if _is(columns, 1) else column_step
        if _fits(leading, rows):
            return Matrix(rows, columns, True, leading, offset, batch_step)
    return None


def _is(value: Size, wanted: int) -> bool:
    return isinstance(value, int | tirx.IntImm) and int(value) == wanted


def _fits(leading: Size, length: Size) -> bool:
    """Whether a leading dimension is at least the length of a row; a symbolic one is taken at its word.

    A number beside a symbolic length is not: rows of windows overlap, and the BLAS refuses those without a word.
    """
    if isinstance(leading, int | tirx.IntImm):
        return isinstance(length, int | tirx.IntImm) and int(leading) >= int(length)
    return True


def product(
    a: te.Tensor,
    b: te.Tensor,
    lhs: Matrix,
    rhs: Matrix,
    dtype: str,
    *,
    alpha: float = 1.0,
    start: te.Tensor | None = None,
) -> te.Tensor:
    """`alpha * lhs @ rhs`, plus `start` (broadcast to the result) where given: a row-major (rows, columns) tensor."""

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        left, right, out = ins[0], ins[1], outs[0]
        statements = []
        if start is not None:
            index: list[Any] = []
            with IRBuilder() as first, loops(out.shape, index):
                lead = len(index) - len(ins[2].shape)
                at = [const(0) if _is(s, 1) else index[lead + d] for d, s in enumerate(ins[2].shape)]
                T.buffer_store(out, cast(tirx.BufferLoad(ins[2], at), dtype), index)
            statements.append(first.get())
        with IRBuilder() as call, T.serial(0, 1):
            numbers = T.alloc_buffer((6,), "int32", scope="local")
            factors = T.alloc_buffer((2,), dtype, scope="local")
            flags = T.alloc_buffer((2,), "int8", scope="local")
            # Fortran's BLAS is column-major: it gets the transposed product, right-hand matrix first.
            sizes = _sizes((rhs.columns, lhs.rows, lhs.columns), (rhs.leading, lhs.leading, rhs.columns))
            for k, size in enumerate(sizes):
                T.buffer_store(numbers, size, [k])
            T.buffer_store(factors, number(alpha, dtype), [0])
            T.buffer_store(factors, number(0 if start is None else 1, dtype), [1])
            for k, operand in enumerate((rhs, lhs)):
                T.buffer_store(flags, tirx.const(ord("T" if operand.transposed else "N"), "int8"), [k])
            n, f, t = _addresses(numbers, 6), _addresses(factors, 2), _addresses(flags, 2)
            left_start, right_start, out_start = _start(left, lhs.offset), _start(right, rhs.offset), _start(out, 0)
            operands = (right_start, n[3], left_start, n[4], f[1], out_start, n[5])
            name = f"{_PREFIX[dtype]}gemm_"
            T.evaluate(tirx.call_extern("int32", name, t[0], t[1], n[0], n[1], n[2], f[0], *operands))
        statements.append(call.get())
        return tirx.stmt_seq(*statements)

    inputs = [a, b] if start is None else [a, b, start]
    return te.extern([(lhs.rows, rhs.columns)], inputs, body, name="gemm", dtype=dtype, attrs=LIBRARY_CALL)


def batch_product(a: te.Tensor, b: te.Tensor, lhs: Matrix, rhs: Matrix, count: Size, dtype: str) -> te.Tensor:
    """`lhs[i] @ rhs[i]` for i < count, in one call: a row-major (count, rows, columns) tensor."""
    number_of = const(count) if isinstance(count, int) else count

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        left, right, out = ins[0], ins[1], outs[0]
        with IRBuilder() as call, T.serial(0, 1):
            pointers = T.alloc_buffer((3, count), "uint64", scope="global")
            numbers = T.alloc_buffer((6,), "int32", scope="local")
            group = T.alloc_buffer((3,), "int32", scope="local")
            factors = T.alloc_buffer((2,), dtype, scope="local")
            sizes = _sizes((lhs.rows, rhs.columns, lhs.columns), (lhs.leading, rhs.leading, rhs.columns))
            for k, size in enumerate(sizes):
                T.buffer_store(numbers, size, [k])
            for k, operand in enumerate((lhs, rhs)):
                T.buffer_store(group, tirx.const(_TRANSPOSE if operand.transposed else _NO_TRANSPOSE, "int32"), [k])
            T.buffer_store(group, _int32(count), [2])
            T.buffer_store(factors, number(1, dtype), [0])
            T.buffer_store(factors, number(0, dtype), [1])
            with T.serial(0, number_of) as i:
                for k, (buffer, operand) in enumerate(((left, lhs), (right, rhs))):
                    address = _start(buffer, operand.offset + i * operand.batch_step, "uint64")
                    T.buffer_store(pointers, address, [k, i])
                address = _start(out, i * (lhs.rows * rhs.columns), "uint64")
                T.buffer_store(pointers, address, [2, i])
            n, g, f = _addresses(numbers, 6), _addresses(group, 3), _addresses(factors, 2)
            p = [tirx.address_of(tirx.BufferLoad(pointers, [k, 0])) for k in range(3)]
            operands = (p[0], n[3], p[1], n[4], f[1], p[2], n[5])
            layout, groups = tirx.const(_ROW_MAJOR, "int32"), tirx.const(1, "int32")
            name = f"cblas_{_PREFIX[dtype]}gemm_batch"
            shared = (layout, g[0], g[1], n[0], n[1], n[2], f[0])
            T.evaluate(tirx.call_extern("int32", name, *shared, *operands, groups, g[2]))
        return call.get()

    return te.extern([(count, lhs.rows, rhs.columns)], [a, b], body, name="gemm_batch", dtype=dtype, attrs=LIBRARY_CALL)


def _int32(size: Size) -> Any:
    return tirx.const(int(size), "int32") if isinstance(size, int | tirx.IntImm) else size.astype("int32")


def _sizes(counts: Sequence[Size], leading: Sequence[Size]) -> list[Any]:
    """What the BLAS gets as sizes, as int32. A leading dimension of zero, which a symbolic one may be, it refuses."""
    return [_int32(n) for n in counts] + [
        _int32(n) if isinstance(n, int | tirx.IntImm) else _int32(tirx.max(n, const(1))) for n in leading
    ]


def _addresses(buffer: Any, count: int) -> list[Any]:
    return [tirx.address_of(tirx.BufferLoad(buffer, [k])) for k in range(count)]


def _start(buffer: Any, offset: Size, dtype: str = "handle") -> Any:
    """Address of the element at `offset` of a row-major buffer, as a pointer or as a number."""
    # An index of `buffer` itself would divide by its sizes.
    flat = T.decl_buffer((element_count(buffer.shape),), buffer.dtype, data=buffer.data)
    element = tirx.BufferLoad(flat, [const(offset)])
    if dtype == "handle":
        return tirx.address_of(element)
    return tirx.call_intrin(dtype, "tirx.address_of", element)
