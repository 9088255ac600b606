"""Matrix products of float32 and float64, called from generated code or, of few rows, generated; others by ATen."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from tvm import tirx

from ... import blas, torch_api
from ...blas import SMALL_M
from ...kinds import Kind
from ..compute import gemm, layout, small_m_gemm
from ..compute.gemm import Matrix
from ..context import ConversionContext
from ..gemm_sums import is_transpose
from ..registry import register
from ..values import SymbolicNumber, TensorValue

aten = torch.ops.aten


#: Where a product's right-hand matrix stands among its arguments.
_PRODUCTS: dict[Any, int] = {aten.mm.default: 1, aten.addmm.default: 2}
#: Products of few rows by one transposed matrix from which on it is turned.
ENOUGH_TO_TURN = 8

Operand = tuple[TensorValue, Matrix]


def _operand(ctx: ConversionContext, x: TensorValue) -> Operand | None:
    """The tensor to read and how the matrix lies in it: in place where its memory allows, else as a row-major copy."""
    strided = x.strided
    if strided is not None and strided.storage.dense:
        storage = TensorValue(strided.storage.var, tuple(strided.storage.var.ty.shape.values), x.dtype)
        size, stride = ctx.dims(strided.size), ctx.dims(strided.stride)
        offset = 0 if strided.whole else ctx.dim(strided.offset)
        batch_step = stride[0] if len(size) == 3 else 0
        found = gemm.matrix(size[-2], size[-1], stride[-2], stride[-1], offset, batch_step)
        if found is not None:
            return storage, found
    rows, columns = x.shape[-2:]
    found = gemm.matrix(rows, columns, columns, 1, 0, rows * columns)
    return None if found is None else (x, found)


def _is_nothing(size: Any) -> bool:
    """Whether an inner size is zero: then there is no first element to take the address of."""
    return isinstance(size, int) and size == 0


def _in_aten(ctx: ConversionContext) -> Any:
    return ctx.extern.call_node(ctx.node, Kind.LIBRARY, non_aliasing=True)


@register(aten.mm.default, kind=Kind.LIBRARY)
def convert_mm(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> Any:
    return _product(ctx, a, b, 1, None)


@register(aten.addmm.default, kind=Kind.LIBRARY)
def convert_addmm(
    ctx: ConversionContext, start: TensorValue, a: TensorValue, b: TensorValue, beta: Any, alpha: Any
) -> Any:
    if isinstance(alpha, SymbolicNumber) or isinstance(beta, SymbolicNumber) or beta != 1 or start.dtype != a.dtype:
        return _in_aten(ctx)
    return _product(ctx, a, b, alpha, start)


def _product(ctx: ConversionContext, a: TensorValue, b: TensorValue, alpha: float, start: TensorValue | None) -> Any:
    name = {"float32": "sgemm_", "float64": "dgemm_"}.get(a.dtype)
    if name not in blas.symbols() or _is_nothing(a.shape[-1]):
        return _in_aten(ctx)
    left, right = _operand(ctx, a), _operand(ctx, b)
    if left is None or right is None:
        return _in_aten(ctx)
    right = _turned(ctx, right)
    is_generated = _is_generated(ctx, left, right)
    if is_generated:
        ctx.ran_as = Kind.NATIVE

    (held, matrix), (storage, by), dtype = left, right, a.dtype

    def compute(p: Any, q: Any, *rest: Any) -> Any:
        first = rest[0] if rest else None
        if is_generated:
            return small_m_gemm.product(p, q, matrix, by, alpha=alpha, start=first)
        return gemm.product(p, q, matrix, by, dtype, alpha=alpha, start=first)

    return ctx.compute(compute, [held, storage, *([] if start is None else [start])])


def _turned(ctx: ConversionContext, right: Operand) -> Operand:
    """The right-hand side of a product, a transposed one row-major where enough products of few rows read it.

    The BLAS takes up to twice as long for few rows by a transposed matrix, and generated code takes none.
    """
    storage, by = right
    rows = torch_api.hint_of(ctx.node.meta["val"].shape[0])
    if not by.transposed or rows not in SMALL_M or storage.dtype != "float32" or storage.shape != (by.columns, by.rows):
        return right
    if not _is_shared(ctx.node):
        return right
    return ctx.memoised(layout.permute, storage, (1, 0)), Matrix(by.rows, by.columns, False, by.columns)


def _is_generated(ctx: ConversionContext, left: Operand, right: Operand) -> bool:
    """Whether generated code does a product better than the BLAS, as far as this machine was measured."""
    (held, matrix), (storage, by) = left, right
    if not isinstance(matrix.rows, int | tirx.IntImm) or int(matrix.rows) not in ctx.options.generated_rows:
        return False
    return small_m_gemm.fits(matrix, by, held.shape, storage.shape, held.dtype)


def _is_shared(node: torch.fx.Node) -> bool:
    """Whether a product's right-hand matrix is that of ENOUGH_TO_TURN products. Looks no further than at as many."""
    shared = _right(node)
    alike = (n for n in shared.args[0].users if is_transpose(n)) if is_transpose(shared) else (shared,)
    products = (user for n in alike for user in n.users if user.target in _PRODUCTS and _right(user) is n)
    return sum(1 for _ in itertools.islice(products, ENOUGH_TO_TURN)) == ENOUGH_TO_TURN


def _right(node: torch.fx.Node) -> Any:
    return node.args[_PRODUCTS[node.target]]


@register(aten.bmm.default, kind=Kind.LIBRARY)
def convert_bmm(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> Any:
    name = {"float32": "cblas_sgemm_batch", "float64": "cblas_dgemm_batch"}.get(a.dtype)
    count = a.shape[0]
    if name not in blas.symbols() or _is_nothing(a.shape[-1]):
        return _in_aten(ctx)
    left, right = _operand(ctx, a), _operand(ctx, b)
    if left is None or right is None:
        return _in_aten(ctx)
    (held, matrix), (storage, by), dtype = left, right, a.dtype
    return ctx.compute(lambda p, q: gemm.batch_product(p, q, matrix, by, count, dtype), [held, storage])
