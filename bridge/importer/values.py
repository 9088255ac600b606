# SPDX-License-Identifier: Apache-2.0
"""The values that FX nodes become while a graph is translated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax

from .types import Dim


@dataclass(frozen=True, eq=False)
class Storage:
    """A block of memory laid out as eager's: a graph input, the result of an ATen call, a native result."""

    source: relax.Var | Callable[[], relax.Var]  # row-major over the dims in memory order; made when it is asked for
    offset: Any = 0  # storage offset of its FakeTensor
    input: int | None = None  # number of the graph input that it is
    #: False: an input that enters the function as a contiguous copy (only the runtime sees its layout), or a native
    #: result in another order (it is laid out for an output that it is).
    dense: bool = True

    @property
    def var(self) -> relax.Var:
        return self.source if isinstance(self.source, relax.Expr) else self.source()


@dataclass(frozen=True, eq=False)
class StridedView:
    """Where a tensor lies in a storage: FakeTensor sizes and strides, offset in elements relative to the storage."""

    storage: Storage
    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    offset: Any
    whole: bool = False  # it is the storage itself and the storage's variable is row-major over its dims


class TensorValue:
    """A tensor in the graph: a Relax variable, row-major over the logical dims, and its strided view of a storage if it
    has one.

    The variable of a view is made when a native kernel first reads it: views that only ATen calls and outputs see never
    become a kernel.
    """

    def __init__(
        self,
        var: relax.Var | Callable[[], relax.Var],
        shape: tuple[Dim, ...],
        dtype: str,
        strided: StridedView | None = None,
    ):
        self._var = var
        self.shape = shape
        self.dtype = dtype
        self.strided = strided

    @property
    def var(self) -> relax.Var:
        if not isinstance(self._var, relax.Expr):
            self._var = self._var()
        return self._var

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def placed(self, strided: StridedView) -> TensorValue:
        return TensorValue(self._var, self.shape, self.dtype, strided)


@dataclass(frozen=True, eq=False)
class OpaqueValue:
    """A value that TVM cannot type (complex, sparse, quantized, generator state): only ATen calls read it."""

    var: relax.Var
    input: int | None = None


@dataclass(frozen=True)
class SymbolicNumber:
    """A SymInt, SymFloat or SymBool that a native converter gets for a number."""

    expr: Any  # sympy
    python_type: type


#: What a converter gets for a node: a tensor, something opaque, a number, or a tuple of them.
Value = Any
