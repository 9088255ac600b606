# SPDX-License-Identifier: Apache-2.0
"""The outputs of a graph: which leave the Relax function, which are views of memory that the caller has already.

Note [Old values]
What the user gets of an input that the graph writes is the input itself or a view of it, with the new value. What a
forward graph saves for its backward is the value from before: `y = (buffer * 2).sin() * w; buffer.add_(1)` saves
`buffer`, to compute the sine again. That is a copy, made before the write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
import torch.fx
from tvm import relax

from .. import torch_api
from ..kinds import Kind, ReasonKind
from ..plan import (
    FromConstant,
    FromFunction,
    FromInput,
    FromScalar,
    Mutation,
    OutputPlan,
    Param,
    ScalarRef,
    Strided,
    TensorParam,
)
from ..schemas import OutputRole
from .compute.layout import identity, permute
from .types import dense_order
from .values import OpaqueValue, SymbolicNumber, TensorValue

if TYPE_CHECKING:
    from .context import ConversionContext
    from .inputs import Inputs

aten = torch.ops.aten


class Outputs:
    """Plans what the runtime makes of the function's results: see Note [Storages and strided views] in layouts.py."""

    def __init__(self, ctx: ConversionContext, inputs: Inputs):
        self._ctx = ctx
        self._inputs = inputs
        self.results: list[relax.Expr] = []  # of the Relax function, each once
        self._numbers: dict[Any, int] = {}
        self._written: dict[torch.fx.Node, int] = {}  # copy_ node -> input
        self._sources: list[tuple[int, Any]] = []  # input -> node or number that it becomes

    def copy_into_input(self, node: torch.fx.Node) -> None:
        """A final `copy_(input, source)`. Later readers of the node see the new value."""
        target, source = node.args[0], node.args[1]
        if not (isinstance(target, torch.fx.Node) and target.op == "placeholder"):
            raise self._ctx.cannot("copy_ into something that is not a graph input", node, ReasonKind.NO_CONVERTER)
        index = [n for n in self._ctx.graph.nodes if n.op == "placeholder"].index(target)
        self._sources.append((index, source))
        self._written[node] = index
        self._ctx.env[node] = self._ctx.env[source] if isinstance(source, torch.fx.Node) else source

    def plan(self) -> tuple[list[OutputPlan], list[Mutation]]:
        """The outputs in order, and the writes in order. Fills `results`."""
        mutations = [
            Mutation(index, self._plan(source) if isinstance(source, torch.fx.Node) else FromConstant(source))
            for index, source in self._sources
        ]
        output = next(n for n in self._ctx.graph.nodes if n.op == "output")
        leaves = output.args[0] if isinstance(output.args[0], list | tuple) else [output.args[0]]
        plans = [
            self._output(leaf, role) if isinstance(leaf, torch.fx.Node) else FromConstant(leaf)
            for leaf, role in zip(leaves, self._ctx.output_roles(len(leaves)), strict=True)
        ]
        self._ctx.extern.put_back()
        if self._ctx.extern.last_effectful is not None:
            self._result(self._ctx.extern.last_effectful)
        return plans, mutations

    def new_values(
        self, first: int, params: Sequence[Param], outputs: Sequence[OutputPlan], mutations: Sequence[Mutation]
    ) -> list[list[int]]:
        """[number of a result, number of a parameter] where the result is nothing but the parameter's new value.

        `params` are the function's parameters from number `first` on.
        """
        given = {p.index: (first + number, p) for number, p in enumerate(params) if isinstance(p, TensorParam)}
        plans = [*outputs, *(mutation.source for mutation in mutations)]
        uses = Counter(plan.index for plan in plans if isinstance(plan, FromFunction))
        writes = Counter(mutation.index for mutation in mutations)
        copied = {m.source.index for m in mutations if isinstance(m.source, FromInput)}  # by the runtime, and later
        found = []
        for mutation in mutations:
            source, (number, param) = mutation.source, given.get(mutation.index, (0, None))
            if not isinstance(source, FromFunction) or source.opaque or source.relayout or param is None:
                continue
            if writes[mutation.index] > 1 or mutation.index in copied:
                continue
            if uses[source.index] == 1 and self._in_order(source.view, param):
                found.append([source.index, number])
        return found

    def _in_order(self, view: Strided | None, param: TensorParam) -> bool:
        """Whether the dims of a result, seen through `view`, lie in memory as those of the parameter do."""
        if param.order is None or param.empty:
            return False
        if view is None:
            return param.order == tuple(range(len(param.order)))
        return view == self._inputs.layout(param.index)

    def _result(self, var: relax.Expr) -> int:
        if var not in self._numbers:
            self._numbers[var] = len(self.results)
            self.results.append(var)
        return self._numbers[var]

    def _output(self, node: torch.fx.Node, role: OutputRole) -> OutputPlan:
        """See Note [Old values] for what is copied."""
        plan = self._plan(node)
        written = isinstance(plan, FromInput) and plan.index in {index for index, _ in self._sources}
        if not written or node in self._written or role in (OutputRole.OUTPUT, OutputRole.MUTATION):
            return plan
        value = self._ctx.env[node]
        if isinstance(value, TensorValue):
            copy = self._ctx.emit(identity, [value.var], name=f"{node.name}_before")
            return self._tensor(node, TensorValue(copy, value.shape, value.dtype))
        copied = self._ctx.extern.call(
            aten.clone.default, (value,), {}, node.meta["val"], Kind.LIBRARY, non_aliasing=True
        )
        return FromFunction(self._result(copied.var), opaque=True)

    def _plan(self, node: torch.fx.Node) -> OutputPlan:
        if node in self._written:
            return FromInput(self._written[node])
        value = self._ctx.env[node]
        if isinstance(value, SymbolicNumber):
            number = self._ctx.number(value.expr)
            return FromScalar(number) if isinstance(number, ScalarRef) else FromConstant(number)
        if isinstance(value, OpaqueValue):
            if value.input is not None:
                return FromInput(value.input)
            return FromFunction(self._result(value.var), opaque=True)
        if not isinstance(value, TensorValue):
            return FromConstant(value)
        return self._tensor(node, value)

    def _tensor(self, node: torch.fx.Node, value: TensorValue) -> OutputPlan:
        number = self._ctx.number
        strided = value.strided
        fake = node.meta["val"]
        if strided is not None:
            view = Strided(
                tuple(number(s) for s in strided.size), tuple(number(s) for s in strided.stride), number(strided.offset)
            )
            if strided.storage.input is not None:
                return FromInput(strided.storage.input, None if node.op in ("placeholder", "get_attr") else view)
            whole = strided.whole and _row_major(fake)
            return FromFunction(self._result(strided.storage.var), None if whole else view)
        order = dense_order(fake)
        layout = Strided(tuple(number(s) for s in fake.shape), tuple(number(s) for s in fake.stride()))
        if order is None:
            return FromFunction(self._result(value.var), layout, relayout=True)
        if order != tuple(range(fake.dim())):
            var = self._ctx.emit(permute, [value.var], order, name=f"{node.name}_laid_out")
            return FromFunction(self._result(var), layout)
        return FromFunction(self._result(value.var), None if _row_major(fake) else layout)


def _row_major(fake: torch.Tensor) -> bool:
    """Whether the strides are exactly those of a new contiguous tensor, also in dims of size one."""
    expected: Any = 1
    for size, stride in zip(reversed(fake.shape), reversed(fake.stride()), strict=True):
        if sympy.simplify(torch_api.expr_of(stride) - torch_api.expr_of(expected)) != 0:
            return False
        expected = expected * size
    return not any(isinstance(s, int) and s == 0 for s in fake.shape)
