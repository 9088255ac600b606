# SPDX-License-Identifier: Apache-2.0
"""Element-wise kernels written as small programs: named scalars, branches and loops for each element.

A te expression is a tree: a function that reads its argument three times inside a function that does so too is a tree
of nine copies, and TVM's simplifier puts a let-bound value back in place of its variable. Here a value is stored in a
local scalar and read from there (LLVM keeps it in a register), and a loop may run until the element is done. Such a
kernel is opaque to fusion.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from ...attributes import INDEPENDENT
from .layout import broadcast_index, const, element_count, unflatten
from .pointwise import Expr, cast, dtype_of, number

#: From so many elements on they are spread over the threads: an element costs some tens of nanoseconds.
PARALLEL_ELEMENTS = 1 << 12


class Cell:
    """A scalar of one element that can be written again."""

    def __init__(self, value: Expr):
        # Not scope "local": TVM would take each such scalar from the heap, for every element anew.
        self._buffer = T.alloc_buffer((1,), dtype_of(value), scope="global")
        self.set(value)

    def get(self) -> Expr:
        """Its content at the place in the program where the expression is used."""
        return tirx.BufferLoad(self._buffer, [const(0)])

    def set(self, value: Expr) -> None:
        T.buffer_store(self._buffer, value, [const(0)])


class Program:
    """What a function of `elementwise` writes its statements with."""

    def cell(self, value: Expr) -> Cell:
        return Cell(value)

    def let(self, value: Expr) -> Expr:
        """`value`, computed here and once."""
        return Cell(value).get()

    @contextlib.contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        with T.If(condition), T.Then():
            yield

    @contextlib.contextmanager
    def loop(self, condition: Expr) -> Iterator[None]:
        """Repeats while the condition, an expression over cells, holds."""
        with T.While(condition):
            yield

    def choose(self, cases: Sequence[tuple[Expr, Callable[[], Expr]]], otherwise: Callable[[], Expr]) -> Expr:
        """The float64 value of the first case whose condition holds; only that one is computed."""
        result = Cell(number(0, "float64"))

        def rest(remaining: Sequence[tuple[Expr, Callable[[], Expr]]]) -> None:
            if not remaining:
                result.set(otherwise())
                return
            with T.If(remaining[0][0]):
                with T.Then():
                    result.set(remaining[0][1]())
                with T.Else():
                    rest(remaining[1:])

        rest(cases)
        return result.get()

    def polynomial(self, x: Expr, coefficients: Sequence[float]) -> Expr:
        """Horner's rule, the constant first in `coefficients`; `x` is a number or the content of a cell."""
        dtype = dtype_of(x)
        total = number(coefficients[-1], dtype)
        for c in reversed(coefficients[:-1]):
            total = total * x + number(c, dtype)
        return self.let(total)


@contextlib.contextmanager
def elements(shape: Sequence[Any]) -> Iterator[tuple[list[Any], Program]]:
    """One loop over all elements of `shape`, in parallel where they are many: (index, the program of an element)."""
    count = element_count(shape)
    few = isinstance(count, tirx.IntImm) and int(count) < PARALLEL_ELEMENTS
    with (T.serial if few else T.parallel)(0, count, annotations={INDEPENDENT: 1}) as position:
        yield unflatten(position, shape), Program()


def elementwise(function: Callable[..., Expr]) -> Callable[..., te.Tensor]:
    """As pointwise.elementwise, of a function `(program, *scalars)` that returns a scalar."""

    def compute(*args: Any) -> te.Tensor:
        *tensors, shape, compute_dtype, out_dtype = args

        def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
            with IRBuilder() as builder, elements(shape) as (at, program):
                loads = [tirx.BufferLoad(b, broadcast_index(at, b.shape, shape)) for b in ins]
                values = [program.let(cast(v, compute_dtype) if compute_dtype else v) for v in loads]
                T.buffer_store(outs[0], cast(function(program, *values), out_dtype), at)
            return builder.get()

        return te.extern([tuple(shape)], tensors, body, name="program", dtype=out_dtype)

    return compute


def in_float64(function: Callable[..., Expr]) -> Callable[..., Expr]:
    """A program over float64 scalars as one over scalars of any float dtype, rounded at its end."""

    def widened(program: Program, *values: Expr) -> Expr:
        wide = [v if dtype_of(v) == "float64" else program.let(cast(v, "float64")) for v in values]
        return cast(function(program, *wide), dtype_of(values[0]))

    return widened
