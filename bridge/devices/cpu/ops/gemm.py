# SPDX-License-Identifier: Apache-2.0
"""Matrix products of float32 and float64: called from generated code or, of few rows, generated; others are ATen's."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from .... import torch_api
from ....importer.compute import layout
from ....importer.context import ConversionContext
from ....importer.registry import Call, register
from ....importer.values import TensorValue
from ....kinds import Kind, ReasonKind
from .. import blas
from ..blas import SMALL_M
from ..compute import gemm, small_m_gemm
from ..compute.gemm import Matrix
from ..gemm_sums import is_transpose

aten = torch.ops.aten


#: Where a product's right-hand matrix stands among its arguments.
_PRODUCTS: dict[Any, int] = {aten.mm.default: 1, aten.addmm.default: 2}
#: Products of few rows by one transposed matrix from which on it is turned.
ENOUGH_TO_TURN = 8
#: The BLAS's routines for a product and for a batch of them.
_ROUTINES = {torch.float32: ("sgemm_", "cblas_sgemm_batch"), torch.float64: ("dgemm_", "cblas_dgemm_batch")}

Operand = tuple[TensorValue, Matrix]


# ---- which products: asked before a translation ----


def _is_called(call: Call) -> bool:
    """Whether the BLAS takes a product: it has the dtype, and there is a first element to take the address of."""
    left, _ = _factors(call)
    return _ROUTINES.get(left.dtype, ("", ""))[left.dim() == 3] in blas.symbols() and left.shape[-1] != 0


def _is_of_few_rows(call: Call) -> bool:
    """Whether generated code does a product better than the BLAS, as far as this machine was measured."""
    left, _ = _factors(call)
    rows = left.shape[0]
    return left.dtype is torch.float32 and isinstance(rows, int) and rows in call.tuned and _is_called(call)


def _factors(call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    first = _PRODUCTS.get(call.node.target, 1) - 1
    return call.args[first], call.args[first + 1]


def _adds(call: Call) -> bool:
    """Whether an addmm adds its start as it is, in the product's dtype."""
    start, left, _, beta, alpha = call.args
    return not torch_api.is_symint(alpha) and not torch_api.is_symint(beta) and beta == 1 and start.dtype == left.dtype


# ---- operands ----


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


def _operands(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> tuple[Operand, Operand]:
    """Both matrices of a product. Refuses rows that overlap."""
    left, right = _operand(ctx, a), _operand(ctx, b)
    if left is None or right is None:
        raise ctx.refuse(ReasonKind.ARGUMENTS, "a matrix whose rows overlap")
    return left, _turned(ctx, right) if len(b.shape) == 2 else right


def _is_shared(node: torch.fx.Node) -> bool:
    """Whether a product's right-hand matrix is that of ENOUGH_TO_TURN products. Looks no further than at as many."""
    shared = _right(node)
    alike = (n for n in shared.args[0].users if is_transpose(n)) if is_transpose(shared) else (shared,)
    products = (user for n in alike for user in n.users if user.target in _PRODUCTS and _right(user) is n)
    return sum(1 for _ in itertools.islice(products, ENOUGH_TO_TURN)) == ENOUGH_TO_TURN


def _right(node: torch.fx.Node) -> Any:
    return node.args[_PRODUCTS[node.target]]


# ---- products ----


@register(aten.mm.default, device="cpu", priority=2, when=_is_of_few_rows)
def generate_mm(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> TensorValue:
    return _generated(ctx, a, b)


@register(aten.addmm.default, device="cpu", priority=2, when=lambda call: _adds(call) and _is_of_few_rows(call))
def generate_addmm(
    ctx: ConversionContext, start: TensorValue, a: TensorValue, b: TensorValue, beta: Any, alpha: Any
) -> TensorValue:
    return _generated(ctx, a, b, start, alpha=alpha)


def _generated(
    ctx: ConversionContext, a: TensorValue, b: TensorValue, *start: TensorValue, alpha: float = 1
) -> TensorValue:
    (held, matrix), (storage, by) = _operands(ctx, a, b)
    if not small_m_gemm.fits(matrix, by, held.shape, storage.shape, held.dtype):
        raise ctx.refuse(ReasonKind.ARGUMENTS, "a matrix that is not read by rows")

    def compute(p: Any, q: Any, *rest: Any) -> Any:
        return small_m_gemm.product(p, q, matrix, by, alpha=alpha, start=rest[0] if rest else None)

    return ctx.compute(compute, [held, storage, *start])


@register(aten.mm.default, device="cpu", kind=Kind.LIBRARY, priority=1, when=_is_called)
def call_mm(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> TensorValue:
    return _called(ctx, a, b)


@register(
    aten.addmm.default, device="cpu", kind=Kind.LIBRARY, priority=1, when=lambda call: _adds(call) and _is_called(call)
)
def call_addmm(
    ctx: ConversionContext, start: TensorValue, a: TensorValue, b: TensorValue, beta: Any, alpha: Any
) -> TensorValue:
    return _called(ctx, a, b, start, alpha=alpha)


def _called(
    ctx: ConversionContext, a: TensorValue, b: TensorValue, *start: TensorValue, alpha: float = 1
) -> TensorValue:
    (held, matrix), (storage, by) = _operands(ctx, a, b)
    dtype = a.dtype

    def compute(p: Any, q: Any, *rest: Any) -> Any:
        return gemm.product(p, q, matrix, by, dtype, alpha=alpha, start=rest[0] if rest else None)

    return ctx.compute(compute, [held, storage, *start])


@register(aten.bmm.default, device="cpu", kind=Kind.LIBRARY, priority=1, when=_is_called)
def call_bmm(ctx: ConversionContext, a: TensorValue, b: TensorValue) -> TensorValue:
    (held, matrix), (storage, by) = _operands(ctx, a, b)
    count, dtype = a.shape[0], a.dtype
    return ctx.compute(lambda p, q: gemm.batch_product(p, q, matrix, by, count, dtype), [held, storage])
