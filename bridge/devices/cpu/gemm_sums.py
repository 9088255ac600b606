# SPDX-License-Identifier: Apache-2.0
"""Sums of matrix products as one product.

A parameter that a model uses many times (each step of a recurrent layer, shared layers) has a sum of products for its
gradient: A1 @ B1 + A2 @ B2 + ... = [A1 A2 ...] @ [B1; B2; ...]. The right-hand side copies the factors, and reads and
writes the result once instead of once a term; each product of the left-hand side has few columns to work with.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ... import torch_api
from ...device import Rewrite
from ...importer.compute import layout
from ...importer.compute.stack import stacked
from ...kinds import Kind
from . import blas
from .compute import gemm
from .compute.gemm import Matrix

if TYPE_CHECKING:
    from ...importer.context import ConversionContext
    from ...importer.values import TensorValue

aten = torch.ops.aten

#: Products from which on a sum is taken as one.
FEWEST = 3
_ROUTINES = {torch.float32: "sgemm_", torch.float64: "dgemm_"}


@dataclass(frozen=True)
class Product:
    """A term of a sum: `left @ right`, or its transpose."""

    node: torch.fx.Node  # of aten.mm
    turned: bool

    @property
    def factors(self) -> tuple[Any, Any]:
        """(nodes of the transpose of the left-hand factor, of the right-hand one; whether each is to be transposed)."""
        left, right = self.node.args
        return ((right, False), (left, True)) if self.turned else ((left, True), (right, False))

    @property
    def inner(self) -> Any:
        """The size that is summed over."""
        return self.node.args[0].meta["val"].shape[1]  # type: ignore[union-attr]  # of mm


@dataclass
class SumOfProducts:
    """A tree of additions."""

    products: list[Product] = field(default_factory=list)
    others: list[torch.fx.Node] = field(default_factory=list)  # what else it adds
    inner: set[torch.fx.Node] = field(default_factory=set)  # every node that it stands for, but the last addition


def sums_of_products(graph: torch.fx.Graph, native: Collection[str] = ()) -> dict[torch.fx.Node, SumOfProducts]:
    """The sums that are worth to be one product, by their last addition. `native`: names of nodes to leave alone."""
    found: dict[torch.fx.Node, SumOfProducts] = {}
    taken: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if node in taken or not _is_addition(node):
            continue
        tree = SumOfProducts()
        _collect(node, node, tree)
        taken |= tree.inner
        if len(tree.others) <= 1 and not any(n.name in native for n in (node, *tree.inner)) and _pays(tree.products):
            found[node] = tree
    return found


def _is_addition(node: torch.fx.Node) -> bool:
    if node.target is not aten.add.Tensor or node.kwargs or len(node.args) != 2:
        return False
    if node.args[0] is node.args[1]:  # x + x: a chain of those has as many paths as the powers of two
        return False
    found = [n.meta.get("val") if isinstance(n, torch.fx.Node) else None for n in (node, *node.args)]
    values = [v for v in found if isinstance(v, torch.Tensor) and v.dim() == 2 and not torch_api.has_symbols(v)]
    if len(values) != len(found) or len({(v.dtype, *v.shape) for v in values}) != 1:  # something is broadcast
        return False
    routine = _ROUTINES.get(values[0].dtype)
    return routine is not None and routine in blas.symbols()


def _collect(node: torch.fx.Node, root: torch.fx.Node, tree: SumOfProducts) -> None:
    """Takes the tree of additions below `node` apart, without recursion: a chain may be thousands of terms long."""
    pending = [node]
    while pending:
        node = pending.pop()
        if node is root or (len(node.users) == 1 and _is_addition(node)):
            pending += node.args  # type: ignore[arg-type]  # both are nodes
            passed = [] if node is root else [node]
        else:
            passed, product = _product(node)
            if product is None:
                tree.others.append(node)
                continue
            tree.products.append(product)
        tree.inner.update(passed)


def _product(node: torch.fx.Node) -> tuple[list[torch.fx.Node], Product | None]:
    """The matrix product behind any number of transposes with one reader each, and the nodes on the way to it."""
    passed, turned = [node], False
    while is_transpose(node) and len(node.users) == 1:
        turned = not turned
        node = node.args[0]  # type: ignore[assignment]  # of permute
        passed.append(node)
    found = node.target is aten.mm.default and len(node.users) == 1
    return passed, Product(node, turned) if found else None


def is_transpose(node: Any) -> bool:
    return node.target is aten.permute.default and list(node.args[1]) in ([1, 0], [-1, -2])


def _pays(products: list[Product]) -> bool:
    """Whether copying the factors moves fewer elements than reading and writing the sum for each term.

    A symbolic size counts with the value that it had when it was traced.
    """
    if len(products) < FEWEST:
        return False
    sizes = [torch_api.hint_of(product.inner) for product in products]
    rows, columns = products[0].node.meta["val"].shape
    if not all(isinstance(n, int) and n for n in (rows, columns, *sizes)):
        return False
    return sum(sizes) * (rows + columns) <= len(products) * math.prod((rows, columns))


def rewrites(graph: torch.fx.Graph, leave: Collection[str]) -> dict[torch.fx.Node, Rewrite]:
    """See Device.rewrites."""
    found = {}
    for last, tree in sums_of_products(graph, leave).items():
        nodes = [node for node in graph.nodes if node in tree.inner]
        found[last] = Rewrite([*nodes, last], Kind.LIBRARY, functools.partial(convert_sum, tree=tree))
    return found


def convert_sum(ctx: ConversionContext, tree: SumOfProducts) -> TensorValue:
    """The value of the sum whose last addition is in translation."""
    products = tree.products[::-1]  # in the order of the graph
    rows, columns = ctx.fake.shape
    inner = ctx.dim(sum(product.inner for product in products))
    factors = zip(*(product.factors for product in products), strict=True)
    left, right = (ctx.compute(stacked, [_factor(ctx, *factor) for factor in side]) for side in factors)
    shapes = Matrix(rows, inner, True, rows), Matrix(inner, columns, False, columns)
    start = [ctx.env[node] for node in tree.others]  # one tensor or none
    dtype = left.dtype

    def compute(a: Any, b: Any, *rest: Any) -> Any:
        return gemm.product(a, b, *shapes, dtype, start=rest[0] if rest else None)

    return ctx.compute(compute, [left, right, *start])


def _factor(ctx: ConversionContext, node: Any, transposed: bool) -> TensorValue:
    """A factor or its transpose: what it is itself the transpose of, where it is one."""
    if not transposed:
        return ctx.env[node]
    if is_transpose(node):
        return ctx.env[node.args[0]]
    return ctx.compute(layout.permute, [ctx.env[node]], (1, 0))
