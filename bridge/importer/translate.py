"""FX graph -> Relax module: walks the nodes in order, one converter each, and checks every result's type.

Note [Roots and places]
A tensor that lies in memory as eager's does (graph inputs, results of ATen calls, contiguous native results) is a root.
A view op's result lies in its input's root, at the sizes, strides and offset that its FakeTensor has. ATen calls read a view
as a strided view of the root, and an output that is a view leaves the function as its root and is made into a view by the
runtime: no kernel, eager's strides, eager's aliasing. Native kernels read the view's own Relax variable, an index
computation that fusion folds into the reader.

Note [Order of random calls]
Relax may reorder and drop pure calls. Calls that draw random numbers, or are run for their effect, get the result of the
one before as an extra argument, and the last one's result is a result of the function: they run in FX order, each once.

Note [Results own their memory]
A kernel that only copies (clone, x * 1) may be turned into a view of its input where its result stays inside the function
(RewriteDataflowReshape). A result that leaves it must not share memory with an input that is written later, with a constant
or with another result; so each leaves through a variable of its own outside the dataflow block, which that pass spares.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
import torch.fx
import torch.utils._pytree as pytree
import tvm
from tvm import relax

from .. import torch_api
from ..capture.source import source_of
from ..errors import UnsupportedOps
from ..kinds import Kind, Reason, ReasonKind
from ..schemas import CapturedGraph
from . import views
from .compute import layout
from .kernel import kernel_call
from .registry import Converter, Refusal, registry
from .sites import SITE_FUNCTION, Sites
from .translation import (
    FromConstant,
    FromFunction,
    FromInput,
    FromScalar,
    Mutation,
    NodeReport,
    OpaqueParam,
    OutputPlan,
    Param,
    ScalarParam,
    ScalarRef,
    Strided,
    SymbolSource,
    TensorParam,
    Translation,
)
from .types import DTYPES, Symbols, UnsupportedSize, dense_order, inverse, is_typed, relax_type
from .values import OpaqueValue, Place, Root, SymbolicNumber, TensorValue, Value


class CannotTranslate(Exception):
    """The graph as a whole cannot become a Relax function; the caller runs all of it in ATen with this reason."""

    def __init__(self, reason: Reason):
        super().__init__(str(reason))
        self.reason = reason


def translate(graph: CapturedGraph, *, fallback: str = "aten") -> Translation:
    """Translates a captured graph.

    `fallback="aten"` runs nodes without a native or library lowering in ATen; `"error"` raises UnsupportedOps with all of
    them. Raises CannotTranslate where no Relax function can stand for the graph (sizes that depend on data, mutable ops
    other than a final `copy_`).
    """
    translation = Translator(graph.module).run()
    if fallback == "error" and translation.reasons:
        raise UnsupportedOps(translation.reasons)
    return translation


class Translator:
    """The state of one translation. Converters see it as `ctx`."""

    def __init__(self, module: torch.fx.GraphModule):
        self.module = module
        self.graph = module.graph
        self.symbols = Symbols()
        self.builder = relax.BlockBuilder()
        self.sites = Sites(self)
        self.env: dict[torch.fx.Node, Value] = {}
        self.node: torch.fx.Node  # the node in translation
        self.scalars: list[sympy.Expr] = []
        self._scalar_numbers: dict[Any, int] = {}
        self._float_params: dict[Any, relax.Var] = {}
        self.params: list[tuple[Param, relax.Var]] = []
        self.constants: list[torch.Tensor] = []
        self.nodes: list[NodeReport] = []
        self.mutations: list[tuple[int, torch.fx.Node | Any]] = []
        self._input_fakes: list[Any] = []

    # ---- the whole graph ----

    def run(self) -> Translation:
        placeholders = [n for n in self.graph.nodes if n.op == "placeholder"]
        self._refuse_whole_graph()
        for index, node in enumerate(placeholders):
            self.env[node] = self._input(index, node)
        self._input_fakes = [n.meta.get("val") for n in placeholders]
        for node in self.graph.nodes:
            if node.op == "get_attr":
                self.env[node] = self._attribute(node, len(placeholders))
        self._make_float_params()
        sources = self._symbol_sources()
        symbol_vars = [self.symbols.var(s.symbol) for s in sources if not _is_float_symbol(s.symbol)]
        with self.builder.function("main", [*symbol_vars, *(var for _, var in self.params)]):
            with self.builder.dataflow():
                for node in self.graph.nodes:
                    if node.op == "call_function":
                        self.node = node
                        self._call(node)
                outputs, mutations, results = self._outputs()
                returned = [self.builder.emit_output(result) for result in results]
            self.builder.emit_func_output(relax.Tuple(returned))
        known = {s.symbol for s in sources}
        for expr in self.scalars:
            if unknown := getattr(expr, "free_symbols", set()) - known:
                raise self._cannot(f"the value of {sorted(map(str, unknown))} is not among the graph's inputs")
        return Translation(
            # See Note [Results own their memory].
            module=relax.transform.CanonicalizeBindings()(self.builder.get()),
            symbols=[s.symbol for s in sources if not _is_float_symbol(s.symbol)],
            sources=sources,
            scalars=self.scalars,
            params=[param for param, _ in self.params],
            input_count=len(placeholders),
            constants=self.constants,
            mutations=mutations,
            outputs=outputs,
            result_count=len(results),
            sites=self.sites.table,
            nodes=self.nodes,
        )

    def _cannot(self, detail: str, node: torch.fx.Node | None = None, kind: ReasonKind = ReasonKind.DATA_DEPENDENT) -> CannotTranslate:
        return CannotTranslate(
            Reason(
                kind,
                str(node.target) if node else "graph",
                node.name if node else "",
                detail,
                source=source_of(node) if node else None,
            )
        )

    def _refuse_whole_graph(self) -> None:
        for node in self.graph.nodes:
            if node.op == "call_module":
                raise self._cannot("calls a module", node, ReasonKind.NO_CONVERTER)
            for leaf in pytree.tree_leaves(node.meta.get("val")):
                numbers = [leaf] if torch_api.is_symint(leaf) else []
                if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
                    numbers = [*leaf.shape, *leaf.stride()]
                for number in numbers:
                    free = getattr(torch_api.expr_of(number), "free_symbols", ())
                    if any(torch_api.is_unbacked(s) for s in free):
                        raise self._cannot(f"size {torch_api.expr_of(number)} depends on data", node)
            schema = getattr(node.target, "_schema", None)
            if schema is not None and schema.is_mutable and node.target is not torch.ops.aten.copy_.default:
                raise self._cannot("writes into its arguments", node, ReasonKind.NO_CONVERTER)

    # ---- inputs ----

    def _input(self, index: int, node: torch.fx.Node) -> Value:
        fake = node.meta.get("val")
        if isinstance(fake, torch.Tensor):
            return self._tensor_input(index, node.name, fake)
        if torch_api.is_symint(fake):
            return SymbolicNumber(torch_api.expr_of(fake), type(fake))
        if isinstance(fake, int | float | bool) or fake is None:
            return fake
        return self._opaque_input(index, node.name)

    def _opaque_input(self, index: int, name: str) -> OpaqueValue:
        var = relax.Var(name, relax.AnyType())
        self.params.append((OpaqueParam(index), var))
        return OpaqueValue(var, index)

    def _tensor_input(self, index: int, name: str, fake: torch.Tensor) -> Value:
        if not is_typed(fake):
            return self._opaque_input(index, name)
        order = dense_order(fake)
        shape = self._dims(fake.shape)
        memory = order if order is not None else tuple(range(fake.dim()))
        var = relax.Var(name, relax.TensorType([_expr(shape[d]) for d in memory], DTYPES[fake.dtype]))
        self.params.append((TensorParam(index, order, _is_empty(shape)), var))
        root = Root(var, fake.storage_offset(), index, dense=order is not None)
        place = self._place(fake, root, whole=memory == tuple(range(fake.dim())) and order is not None)
        logical = var if memory == tuple(range(fake.dim())) else self._lazy_permute(var, inverse(memory))
        return TensorValue(logical, shape, DTYPES[fake.dtype], place)

    def _attribute(self, node: torch.fx.Node, input_count: int) -> Value:
        target: Any = self.module
        for part in str(node.target).split("."):
            target = getattr(target, part)
        if not isinstance(target, torch.Tensor):
            return target
        index = input_count + len(self.constants)
        constant = target.detach()
        self.constants.append(constant)
        self._input_fakes.append(constant)
        return self._tensor_input(index, node.name, constant)

    def _make_float_params(self) -> None:
        """A 0-d float64 parameter for each symbolic float that an op reads: TVM has no symbolic floats."""
        for node in self.graph.nodes:
            if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
                continue
            for arg in node.all_input_nodes:
                value = arg.meta.get("val")
                expr = torch_api.expr_of(value) if isinstance(value, torch.SymFloat) else None
                if expr is not None and getattr(expr, "free_symbols", None) and expr not in self._float_params:
                    var = relax.Var(f"{arg.name}_value", relax.TensorType([], "float64"))
                    self._float_params[expr] = var
                    self.params.append((ScalarParam(self.scalar(expr)), var))

    def _symbol_sources(self) -> list[SymbolSource]:
        """Where the runtime reads each symbol, plain occurrences first."""
        found: dict[sympy.Symbol, SymbolSource] = {}
        compound: list[tuple[Any, int, int | None, bool]] = []
        for index, fake in enumerate(self._input_fakes):
            seen: list[tuple[Any, int | None, bool]] = []
            if torch_api.is_symint(fake):
                seen = [(torch_api.expr_of(fake), None, False)]
            elif isinstance(fake, torch.Tensor) and fake.layout == torch.strided:
                seen = [(torch_api.expr_of(s), d, False) for d, s in enumerate(fake.shape)]
                seen += [(torch_api.expr_of(s), d, True) for d, s in enumerate(fake.stride())]
            for expr, dim, stride in seen:
                if isinstance(expr, sympy.Symbol):
                    found.setdefault(expr, SymbolSource(expr, index, dim, stride))
                elif getattr(expr, "free_symbols", None):
                    compound.append((expr, index, dim, stride))
        for expr, index, dim, stride in compound:
            unknown = expr.free_symbols - found.keys()
            if len(unknown) == 1 and len(expr.free_symbols) == 1:
                symbol = next(iter(unknown))
                solve = _linear_inverse(expr, symbol)
                if solve is not None:
                    found[symbol] = SymbolSource(symbol, index, dim, stride, solve)
        for symbol in found:
            if not _is_float_symbol(symbol):
                self.symbols.var(symbol)
        return list(found.values())

    # ---- numbers and sizes ----

    def _dims(self, sizes: Sequence[Any]) -> tuple[Any, ...]:
        try:
            return tuple(self.symbols.dims(sizes))
        except UnsupportedSize as error:
            raise self._cannot(str(error), getattr(self, "node", None), ReasonKind.SYMBOLIC) from None

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
        return TensorValue(self._float_params[number.expr], (), "float64")

    # ---- one node ----

    @property
    def fake(self) -> Any:
        """The FakeTensor (or tuple, or number) of the node in translation."""
        return self.node.meta["val"]

    def _call(self, node: torch.fx.Node) -> None:
        if node.target is operator.getitem:
            self.env[node] = self.env[node.args[0]][node.args[1]]  # type: ignore[index]  # a tuple's getitem
            return
        value = node.meta.get("val")
        if torch_api.is_symint(value) or (isinstance(value, int | float | bool) and not _draws(node.target)):
            plain = not getattr(torch_api.expr_of(value), "free_symbols", None)
            self.env[node] = self.number(value) if plain else SymbolicNumber(torch_api.expr_of(value), type(value))
            self._report(node, Kind.METADATA)
            return
        if node.target is torch.ops.aten.copy_.default:
            self._copy_into_input(node)
            return
        if str(node.target) in _CHECKED_BY_GUARDS:
            self._report(node, Kind.METADATA)
            return
        converter = registry().get(node.target)
        try:
            if converter is None:
                raise Refusal(ReasonKind.NO_CONVERTER)
            self._convert(node, converter)
        except Refusal as refusal:
            reason = self._reason(node, refusal)
            self.env[node] = self.sites.call_node(node, Kind.FALLBACK)
            self._report(node, Kind.FALLBACK, reason)

    def _report(self, node: torch.fx.Node, kind: Kind, reason: Reason | None = None) -> None:
        self.nodes.append(NodeReport(node.name, str(node.target), kind, reason))

    def _reason(self, node: torch.fx.Node, refusal: Refusal) -> Reason:
        fakes = [n.meta.get("val") for n in node.all_input_nodes]
        tensors = [f for f in fakes if isinstance(f, torch.Tensor)]
        return Reason(
            refusal.kind,
            str(node.target),
            node.name,
            refusal.detail,
            dtypes=tuple(str(t.dtype).removeprefix("torch.") for t in tensors),
            shapes=tuple(tuple(str(s) for s in t.shape) for t in tensors),
            source=source_of(node),
        )

    def _convert(self, node: torch.fx.Node, converter: Converter) -> None:
        consumed = consumed_outputs(node)
        if converter.produces is not None and not consumed <= converter.produces:
            raise Refusal(ReasonKind.OUTPUT, f"output {sorted(consumed - converter.produces)} is not computed")
        fakes = [f for f in pytree.tree_leaves(self.fake) if isinstance(f, torch.Tensor)]
        if converter.function is None:
            self.env[node] = self.sites.call_node(node, converter.kind, fresh=True)
            self._report(node, converter.kind)
            return
        inputs = [n.meta.get("val") for n in node.all_input_nodes]
        for value in [*inputs, *fakes]:
            if isinstance(value, torch.Tensor) and not is_typed(value):
                raise Refusal(ReasonKind.OPAQUE, str(value.dtype).removeprefix("torch."))
            if isinstance(value, torch.Tensor) and not converter.symbolic and torch_api.has_symbols(value):
                raise Refusal(ReasonKind.SYMBOLIC)
        if converter.dtypes is not None:
            for value in inputs:
                if isinstance(value, torch.Tensor) and DTYPES[value.dtype] not in converter.dtypes:
                    raise Refusal(ReasonKind.DTYPE, DTYPES[value.dtype])
        args = self.bound_arguments(node)
        if node.target in views.VIEW_OPS:
            self.env[node] = self._view(node, converter, args)
        else:
            if len(fakes) == 1 and isinstance(self.fake, torch.Tensor) and _is_empty(self._dims(self.fake.shape)):
                result: Value = self.empty(self.fake)
            else:
                result = converter.function(self, *args)
            self.env[node] = self._checked(node, result, consumed)
        self._report(node, converter.kind)

    def _view(self, node: torch.fx.Node, converter: Converter, args: list[Any]) -> Value:
        """See Note [Roots and places]."""
        assert converter.function is not None
        source = args[0]
        fakes = self.fake if isinstance(self.fake, list | tuple) else [self.fake]
        base = node.args[0].meta["val"]  # type: ignore[union-attr]  # the first argument of a view op is a tensor node
        place = source.place
        shares = all(torch_api.same_storage(f, base) for f in fakes)
        if any(_is_empty(self._dims(f.shape)) for f in fakes) or _is_empty(source.shape):
            results = [self.empty(f) for f in fakes]
            return tuple(results) if isinstance(self.fake, list | tuple) else results[0]
        if place is None or not shares:
            return self._checked(node, converter.function(self, *args), set(range(len(fakes))))
        made: list[Any] = []

        def convert() -> list[Any]:
            if not made:
                previous, self.node = self.node, node
                result = self._checked(node, converter.function(self, *args), set(range(len(fakes))))  # type: ignore[misc]  # not None
                made.extend(result if isinstance(result, tuple) else (result,))
                self.node = previous
            return made

        def lazy(number: int) -> Callable[[], relax.Var]:
            return lambda: convert()[number].var

        values = tuple(
            TensorValue(lazy(i), self._dims(f.shape), DTYPES[f.dtype], self._place(f, place.root, from_root=True))
            for i, f in enumerate(fakes)
        )
        return values if isinstance(self.fake, list | tuple) else values[0]

    def bound_arguments(self, node: torch.fx.Node) -> list[Any]:
        """Every argument of the op's schema in order, defaults filled in, FX nodes replaced by their values."""
        arguments = node.target._schema.arguments  # type: ignore[union-attr]  # an OpOverload
        bound: list[Any] = []
        for position, argument in enumerate(arguments):
            if position < len(node.args):
                value = node.args[position]
            elif argument.name in node.kwargs:
                value = node.kwargs[argument.name]
            else:
                value = argument.default_value
            bound.append(torch.fx.node.map_arg(value, lambda n: self.env[n]))
        return bound

    def _checked(self, node: torch.fx.Node, result: Value, consumed: set[int]) -> Value:
        """The contract after every node: the Relax type equals the FakeTensor's. Gives contiguous results a place."""
        if not isinstance(result, tuple | list):
            return self._checked_one(node, result, self.fake)
        checked: list[Value] = []
        for number, (value, fake) in enumerate(zip(result, self.fake, strict=True)):
            if value is None:
                if number in consumed:
                    raise Refusal(ReasonKind.OUTPUT, f"output {number} is not computed")
                checked.append(None)
            else:
                checked.append(self._checked_one(node, value, fake))
        return tuple(checked)

    def _checked_one(self, node: torch.fx.Node, value: TensorValue, fake: torch.Tensor) -> TensorValue:
        expected = self._dims(fake.shape)
        ty = value.var.ty
        shape = list(ty.shape.values) if ty.shape is not None else []
        if value.dtype != DTYPES[fake.dtype] or str(ty.dtype) != DTYPES[fake.dtype]:
            raise Refusal(ReasonKind.TYPE_CHECK, f"dtype {ty.dtype} instead of {DTYPES[fake.dtype]}")
        if len(shape) != len(expected) or not all(map(self.symbols.equal, shape, expected)):
            raise Refusal(ReasonKind.TYPE_CHECK, f"shape {list(map(str, shape))} instead of {list(map(str, expected))}")
        place = None
        if node.target not in views.VIEW_OPS and dense_order(fake) == tuple(range(fake.dim())) and not _is_empty(expected):
            place = self._place(fake, Root(value.var, fake.storage_offset()), whole=True)
        return TensorValue(value.var, expected, value.dtype, place)

    def _place(self, fake: torch.Tensor, root: Root, whole: bool = False, from_root: bool = True) -> Place:
        offset = fake.storage_offset() - root.offset if not whole else 0
        return Place(root, tuple(fake.shape), tuple(fake.stride()), offset, whole)

    def _lazy_permute(self, var: relax.Var, order: tuple[int, ...]) -> Callable[[], relax.Var]:
        return lambda: self.emit(layout.permute, [var], order, name="permute")

    # ---- what converters use ----

    def emit(self, function: Callable[..., Any], tensors: Sequence[relax.Var], *args: Any, name: str = "") -> relax.Var:
        """Binds `function(*te_tensors, *args)`, a tensor expression (or several), to a Relax variable."""
        hint = name or getattr(self, "node", None) and self.node.name or "value"
        kernel = str(getattr(getattr(self, "node", None), "target", "kernel")).replace("aten.", "").split(".")[0]

        call = kernel_call(self.builder, self.symbols, function, tensors, args, kernel)
        return self.builder.emit(call, name_hint=hint)

    def compute(self, function: Callable[..., Any], tensors: Sequence[TensorValue], *args: Any) -> TensorValue:
        """One native result: `function(*te_tensors, *args)` returns a te.Tensor."""
        return self.wrap(self.emit(function, [t.var for t in tensors], *args))

    def compute_many(self, function: Callable[..., Any], tensors: Sequence[TensorValue], *args: Any) -> tuple[TensorValue, ...]:
        """Several native results of one kernel: `function` returns a list of at least two te.Tensors."""
        var = self.emit(function, [t.var for t in tensors], *args)
        count = len(var.ty.fields)
        return tuple(self.wrap(self.builder.emit(relax.TupleGetItem(var, i))) for i in range(count))

    def wrap(self, var: relax.Var) -> TensorValue:
        return TensorValue(var, tuple(_plain(d) for d in var.ty.shape.values), str(var.ty.dtype))

    def empty(self, fake: torch.Tensor) -> TensorValue:
        """A tensor without elements."""
        shape = self._dims(fake.shape)
        return self.wrap(self.emit(layout.nothing, [], shape, DTYPES[fake.dtype], name="empty"))

    def refuse(self, kind: ReasonKind, detail: str = "") -> Refusal:
        return Refusal(kind, detail)

    # ---- mutations and outputs ----

    def _copy_into_input(self, node: torch.fx.Node) -> None:
        target, source = node.args[0], node.args[1]
        if not (isinstance(target, torch.fx.Node) and target.op == "placeholder"):
            raise self._cannot("copy_ into something that is not a graph input", node, ReasonKind.NO_CONVERTER)
        index = [n for n in self.graph.nodes if n.op == "placeholder"].index(target)
        self.mutations.append((index, source))
        # Whoever reads the node later reads the new value, in the memory of the input.
        self.env[node] = self.env[source] if isinstance(source, torch.fx.Node) else source
        self._report(node, Kind.METADATA)

    def _outputs(self) -> tuple[list[OutputPlan], list[Mutation], list[relax.Expr]]:
        results: list[relax.Expr] = []
        numbers: dict[Any, int] = {}

        def result(var: relax.Expr) -> int:
            if var not in numbers:
                numbers[var] = len(results)
                results.append(var)
            return numbers[var]

        written = {self._mutated_node(n): i for n in self.graph.nodes for i in [self._mutation_index(n)] if i is not None}
        mutations = [
            Mutation(index, self._plan(source, result, None) if isinstance(source, torch.fx.Node) else FromConstant(source))
            for index, source in self.mutations
        ]
        output = next(n for n in self.graph.nodes if n.op == "output")
        leaves = output.args[0] if isinstance(output.args[0], list | tuple) else [output.args[0]]
        plans = [
            (FromInput(written[leaf]) if leaf in written else self._plan(leaf, result, leaf))
            if isinstance(leaf, torch.fx.Node)
            else FromConstant(leaf)
            for leaf in leaves
        ]
        if self.sites.last_ordered is not None:
            result(self.sites.last_ordered)
        return plans, mutations, results

    def _mutation_index(self, node: torch.fx.Node) -> int | None:
        if node.op == "call_function" and node.target is torch.ops.aten.copy_.default:
            return [n for n in self.graph.nodes if n.op == "placeholder"].index(node.args[0])
        return None

    def _mutated_node(self, node: torch.fx.Node) -> torch.fx.Node:
        return node

    def _plan(self, node: torch.fx.Node, result: Callable[[relax.Expr], int], _leaf: Any) -> OutputPlan:
        value = self.env[node]
        if isinstance(value, SymbolicNumber):
            number = self.number(_sym(value))
            return FromScalar(number) if isinstance(number, ScalarRef) else FromConstant(number)
        if isinstance(value, OpaqueValue):
            if value.input is not None:
                return FromInput(value.input)
            return FromFunction(result(value.var), opaque=True)
        if not isinstance(value, TensorValue):
            return FromConstant(value)
        place = value.place
        fake = node.meta["val"]
        if place is not None:
            view = Strided(
                tuple(self.number(s) for s in place.size),
                tuple(self.number(s) for s in place.stride),
                self.number(place.offset),
            )
            if place.root.input is not None:
                return FromInput(place.root.input, None if node.op in ("placeholder", "get_attr") else view)
            whole = place.whole and _row_major(fake)
            return FromFunction(result(place.root.var), None if whole else view)
        order = dense_order(fake)
        size = tuple(self.number(s) for s in fake.shape)
        stride = tuple(self.number(s) for s in fake.stride())
        if order is None:
            return FromFunction(result(value.var), Strided(size, stride), relayout=True)
        if order != tuple(range(fake.dim())):
            var = self.emit(layout.permute, [value.var], order, name=f"{node.name}_laid_out")
            return FromFunction(result(var), Strided(size, stride))
        return FromFunction(result(value.var), None if _row_major(fake) else Strided(size, stride))


#: Ops without effect here: Dynamo's guards have checked what they check.
_CHECKED_BY_GUARDS = frozenset(
    {"aten._assert_tensor_metadata.default", "aten._assert_scalar.default", "aten.sym_constrain_range.default",
     "aten.sym_constrain_range_for_size.default"}
)  # fmt: skip


def consumed_outputs(node: torch.fx.Node) -> set[int]:
    """The outputs of a node that some other node reads; all of them where a reader takes the whole tuple."""
    value = node.meta.get("val")
    if not isinstance(value, list | tuple):
        return {0}
    consumed: set[int] = set()
    for user in node.users:
        if user.target is operator.getitem:
            if user.users:
                consumed.add(user.args[1])  # type: ignore[arg-type]  # an int
        else:
            return set(range(len(value)))
    return consumed


def _draws(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def _is_float_symbol(symbol: sympy.Symbol) -> bool:
    return bool(symbol.is_integer is not True)


def _linear_inverse(expr: sympy.Expr, symbol: sympy.Symbol) -> Callable[[int], int] | None:
    """For `expr = a*symbol + b`: from the value of the expression to that of the symbol."""
    try:
        polynomial = sympy.Poly(expr, symbol)
    except sympy.PolynomialError:
        return None
    if polynomial.degree() != 1:
        return None
    a, b = (int(c) for c in polynomial.all_coeffs())
    return lambda value: (value - b) // a


def _row_major(fake: torch.Tensor) -> bool:
    """Whether the strides are exactly those of a new contiguous tensor, also in dims of size one."""
    expected: Any = 1
    for size, stride in zip(reversed(fake.shape), reversed(fake.stride()), strict=True):
        if sympy.simplify(torch_api.expr_of(stride) - torch_api.expr_of(expected)) != 0:
            return False
        expected = expected * size
    return not any(isinstance(s, int) and s == 0 for s in fake.shape)


def _is_empty(shape: Sequence[Any]) -> bool:
    return any(isinstance(d, int) and d == 0 for d in shape)


def _expr(size: Any) -> Any:
    return tvm.tirx.const(size, "int64") if isinstance(size, int) else size


def _plain(size: Any) -> Any:
    return int(size) if isinstance(size, tvm.tirx.IntImm) else size


def _sym(value: SymbolicNumber) -> Any:
    return value.expr
