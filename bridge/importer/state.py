# SPDX-License-Identifier: Apache-2.0
"""The state of one translation: the graph, the value of each node, its sizes, and the kernels that are made for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
import torch.fx
from tvm import relax, tirx

from .. import torch_api
from ..capture.source import source_of
from ..kinds import Reason, ReasonKind
from ..plan import ScalarRef
from ..schemas import CapturedGraph, GraphKind, OutputRole
from .compute import layout
from .kernel import KernelHandle, make_kernel
from .kernel_dedup import key_of
from .registry import Refusal
from .types import DTYPES, Symbols, UnsupportedSize
from .values import SymbolicNumber, TensorValue, Value
from .wrappers import unwrapped


class CannotTranslate(Exception):
    """The graph as a whole cannot become a Relax function; the caller runs all of it in ATen with this reason."""

    def __init__(self, reason: Reason):
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True)
class Options:
    """How a graph is translated. Filled by backend.py."""

    fallback: str = "aten"  # "error": raise UnsupportedOps with every reason
    on_compile_error: str = "aten"  # "raise": a fault in a converter is raised and not made a reason
    not_native: Mapping[str, str] = field(default_factory=dict)  # nodes that TVM failed to compile, each with why
    tuned: frozenset[int] = frozenset()  # what the device measured: Device.tuned


class TranslationState:
    """What every part of a translation reads and adds to. Filled while the nodes are walked in order."""

    def __init__(self, captured: CapturedGraph, options: Options):
        self._captured = captured
        self.module = unwrapped(captured.module)
        self.graph = self.module.graph
        self.options = options
        self.device = captured.device
        self.symbols = Symbols()
        self.builder = relax.BlockBuilder()
        self.env: dict[torch.fx.Node, Value] = {}
        self.node: torch.fx.Node  # the node in translation
        self.scalars: list[sympy.Expr] = []
        self.float_vars: dict[sympy.Expr, relax.Var] = {}  # symbolic floats, as 0-d parameters: see inputs.py
        self.kernels: dict[str, set[str]] = defaultdict(set)  # name of a kernel -> the nodes that it computes
        self._scalar_numbers: dict[Any, int] = {}
        self._shared: dict[Any, TensorValue] = {}
        self._made: dict[Hashable, KernelHandle] = {}  # by the keys of kernel_dedup.py

    @property
    def is_backward(self) -> bool:
        """Whether no output of the graph is a view of an input that the caller could see."""
        return self._captured.kind is GraphKind.BACKWARD

    def output_roles(self, count: int) -> list[OutputRole]:
        """What each of the graph's outputs means. In a graph that has no backward all count as the user's."""
        if self._captured.kind is not GraphKind.FORWARD:
            return [OutputRole.OUTPUT] * count
        return [output.role for output in self._captured.outputs]

    def cannot(
        self, detail: str, node: torch.fx.Node | None = None, kind: ReasonKind = ReasonKind.DATA_DEPENDENT
    ) -> CannotTranslate:
        """The exception that refuses the whole graph, because of `node`."""
        op, name = (str(node.target), node.name) if node else ("graph", "")
        return CannotTranslate(Reason(kind, op, name, detail, source=source_of(node) if node else None))

    @property
    def fake(self) -> Any:
        """The FakeTensor (or tuple, or number) of the node in translation; None of a node run for its effect."""
        return self.node.meta.get("val")

    # ---- numbers and sizes ----

    def whole_graph_dims(self, sizes: Sequence[Any]) -> tuple[Any, ...]:
        """Sizes without which no Relax function can be written. Raises CannotTranslate for what has no tirx form."""
        try:
            return tuple(self.symbols.dims(sizes))
        except UnsupportedSize as error:
            raise self.cannot(str(error), getattr(self, "node", None), ReasonKind.SYMBOLIC) from None

    def dims(self, sizes: Sequence[Any]) -> tuple[Any, ...]:
        """Sizes (ints, SymInts, SymbolicNumbers) as ints and tirx expressions. Refuses what has no tirx form."""
        try:
            return tuple(self.symbols.dim(s.expr if isinstance(s, SymbolicNumber) else s) for s in sizes)
        except UnsupportedSize as error:
            raise Refusal(ReasonKind.SYMBOLIC, str(error)) from None

    def dim(self, size: Any) -> Any:
        return self.dims([size])[0]

    def scalar(self, expr: Any) -> ScalarRef:
        """The number under which the runtime evaluates a sympy expression."""
        if expr not in self._scalar_numbers:
            self._scalar_numbers[expr] = len(self.scalars)
            self.scalars.append(expr)
        return ScalarRef(self._scalar_numbers[expr])

    def number(self, value: Any) -> Any:
        """A plain number, or a ScalarRef for one that depends on symbols."""
        expr = torch_api.expr_of(value)
        if isinstance(expr, int | float | bool):
            return expr
        if not getattr(expr, "free_symbols", None) and isinstance(expr, sympy.Basic):
            if expr.is_Integer:
                return int(expr)
            return bool(expr) if isinstance(expr, sympy.logic.boolalg.Boolean) else float(expr)
        return self.scalar(expr)

    def float_param(self, number: SymbolicNumber) -> TensorValue:
        """The 0-d float64 tensor that carries a symbolic float."""
        return TensorValue(self.float_vars[number.expr], (), "float64")

    # ---- kernels ----

    def emit(self, function: Callable[..., Any], tensors: Sequence[relax.Var], *args: Any, name: str = "") -> relax.Var:
        """Binds `function(*te_tensors, *args)`, a tensor expression (or several), to a Relax variable."""
        node = getattr(self, "node", None)
        kernel = "kernel" if node is None else str(node.target).replace("aten.", "").split(".")[0]
        key = key_of(function, tensors, args)
        made = None if key is None else self._made.get(key)
        if made is None:
            made = make_kernel(self.builder, self.symbols, function, tensors, args, kernel)
            if key is not None:
                self._made[key] = made
        if node is not None:
            self.kernels[made.var.name_hint].add(node.name)
        return self.builder.emit(made.call(tensors), name_hint=name or (node.name if node is not None else "value"))

    def compute(self, function: Callable[..., Any], tensors: Sequence[TensorValue], *args: Any) -> TensorValue:
        """One native result: `function(*te_tensors, *args)` returns a te.Tensor."""
        return self.wrap(self.emit(function, [t.var for t in tensors], *args))

    def memoised(self, function: Callable[..., Any], tensor: TensorValue, *args: Any) -> TensorValue:
        """What `compute` gives, computed at the first node that asks for it and kept for others of the graph."""
        key = (tensor.var, function, args)
        if key not in self._shared:
            self._shared[key] = self.compute(function, [tensor], *args)
        return self._shared[key]

    def compute_many(
        self, function: Callable[..., Any], tensors: Sequence[TensorValue], *args: Any
    ) -> tuple[TensorValue, ...]:
        """Several native results of one kernel: `function` returns a list of at least two te.Tensors."""
        var = self.emit(function, [t.var for t in tensors], *args)
        count = len(var.ty.fields)
        return tuple(self.wrap(self.builder.emit(relax.TupleGetItem(var, i))) for i in range(count))

    def wrap(self, var: relax.Var) -> TensorValue:
        return TensorValue(var, tuple(_plain(d) for d in var.ty.shape.values), str(var.ty.dtype))

    def empty(self, fake: torch.Tensor) -> TensorValue:
        """A tensor without elements."""
        shape = self.whole_graph_dims(fake.shape)
        return self.wrap(self.emit(layout.nothing, [], shape, DTYPES[fake.dtype], name="empty"))

    def accumulator(self, dtype: str) -> str:
        """The dtype in which the device sums values of `dtype`."""
        return self.device.accumulator(dtype)

    def refuse(self, kind: ReasonKind, detail: str = "") -> Refusal:
        return Refusal(kind, detail)


def _plain(size: Any) -> Any:
    return int(size) if isinstance(size, tirx.IntImm) else size
