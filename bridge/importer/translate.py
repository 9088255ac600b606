"""FX graph -> Relax module: walks the nodes in order, one converter each, and checks every result's type.

Note [Roots and places]
A tensor that lies in memory as eager's does (graph inputs, results of ATen calls, contiguous native results) is a root.
A view op's result lies in its input's root, at the sizes, strides and offset that its FakeTensor has. ATen calls read a
view as a strided view of the root, and an output that is a view leaves the function as its root and is made into a view
by the runtime: no kernel, eager's strides, eager's aliasing. Native kernels read the view's own Relax variable, an
index computation that fusion folds into the reader.

Note [Order of random calls]
Relax may reorder and drop pure calls. Calls that draw random numbers, or are run for their effect, get the result of
the one before as an extra argument, and the last one's result is a result of the function: they run in FX order, each
once.

Note [Results own their memory]
A kernel that only copies (clone, x * 1) may be turned into a view of its input where its result stays inside the
function (RewriteDataflowReshape). A result that leaves it must not share memory with an input that is written later,
with a constant or with another result; so each leaves through a variable of its own outside the dataflow block, which
that pass spares.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch
import torch.fx
import tvm
from tvm import relax, tirx

from .. import pytree, torch_api
from ..attributes import NEW_VALUES
from ..capture.source import source_of
from ..errors import UnsupportedOps, last_line
from ..kinds import Kind, Reason, ReasonKind
from ..plan import CallingPlan, NodeReport, ScalarRef, Translation
from ..schemas import CapturedGraph, GraphKind, OutputRole
from . import views
from .compute import layout
from .inputs import Inputs
from .kernel import Made, make_kernel
from .outputs import Outputs
from .products import SumOfProducts, convert_sum, sums_of_products
from .registry import Converter, Refusal, registry
from .repeats import key_of
from .sites import Sites, consumed_outputs, draws_random
from .types import DTYPES, Symbols, UnsupportedSize, dense_order, is_empty, is_typed
from .values import Place, Root, SymbolicNumber, TensorValue, Value
from .wrappers import STATE_FUNCTIONS, unwrapped

aten = torch.ops.aten


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
    generated_rows: frozenset[int] = frozenset()  # products of so many rows are generated: see compile/products.py


def translate(graph: CapturedGraph, options: Options = Options()) -> Translation:  # frozen
    """Translates a captured graph.

    Nodes without a native or library lowering run in ATen, each with its reason; under `fallback="error"` that raises
    UnsupportedOps with all reasons. Raises CannotTranslate where no Relax function can stand for the graph (sizes that
    depend on data, mutable ops other than a final `copy_`).
    """
    translation = Translator(graph, options).run()
    if options.fallback == "error" and translation.reasons:
        raise UnsupportedOps(translation.reasons)
    return translation


class Translator:
    """The state of one translation. Converters see it as `ctx`."""

    def __init__(self, captured: CapturedGraph, options: Options):
        self._captured = captured
        self.module = unwrapped(captured.module)
        self.graph = self.module.graph
        self.options = options
        self.symbols = Symbols()
        self.builder = relax.BlockBuilder()
        self.inputs = Inputs(self)
        self.outputs = Outputs(self)
        self.sites = Sites(self)
        self.env: dict[torch.fx.Node, Value] = {}
        self.node: torch.fx.Node  # the node in translation
        self.ran_as: Kind  # how it runs; a converter that has two ways says which it took
        self.scalars: list[sympy.Expr] = []
        self._scalar_numbers: dict[Any, int] = {}
        self._shared: dict[Any, TensorValue] = {}
        self._made: dict[Hashable, Made] = {}  # by the keys of repeats.py
        self.nodes: list[NodeReport] = []
        self.kernels: dict[str, set[str]] = defaultdict(set)  # name of a kernel -> the nodes that it computes

    # ---- the whole graph ----

    def run(self) -> Translation:
        self._refuse_whole_graph()
        self.inputs.read()
        sources = self.inputs.sources()
        symbols = [symbol for symbol, source in sources.items() if source.argument]
        params = [self.symbols.var(s) for s in symbols] + [var for _, var in self.inputs.params]
        with self.builder.function("main", params):
            with self.builder.dataflow():
                sums = sums_of_products(self.graph, self.options.not_native)
                inner = {n for tree in sums.values() for n in tree.inner}
                for node in self.graph.nodes:
                    if node.op != "call_function":
                        continue
                    self.node = node
                    if node in sums:
                        self._sum(node, sums[node])
                    elif node not in inner:
                        self._call(node)
                outputs, mutations = self.outputs.plan()
                returned = [self.builder.emit_output(result) for result in self.outputs.results]
            self.builder.emit_func_output(relax.Tuple(returned))
        for expr in self.scalars:
            unknown: set[Any] = getattr(expr, "free_symbols", set()) - sources.keys()
            if unknown:
                raise self.cannot(f"the value of {sorted(map(str, unknown))} is not among the graph's inputs")
        # See Note [Results own their memory].
        compiled = relax.transform.CanonicalizeBindings()(self.builder.get())
        compiled, kept, read = self.inputs.without_unread(compiled, symbols)
        if pairs := self.outputs.new_values(len(read), kept, outputs, mutations):
            compiled["main"] = compiled["main"].with_attr(NEW_VALUES, pairs)
        return Translation(
            module=compiled,
            plan=CallingPlan(
                sources=[replace(source, argument=symbol in read) for symbol, source in sources.items()],
                scalars=[torch_api.python_source(expr) for expr in self.scalars],
                params=kept,
                input_count=self.inputs.count,
                constant_count=len(self.inputs.constants),
                opened=self.inputs.opened,
                mutations=mutations,
                outputs=outputs,
                result_count=len(returned),
                sites=self.sites.table,
            ),
            constants=self.inputs.constants,
            nodes=self.nodes,
            kernels=dict(self.kernels),
        )

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

    def _refuse_whole_graph(self) -> None:
        for node in self.graph.nodes:
            if node.op == "call_module":
                raise self.cannot("calls a module", node, ReasonKind.NO_CONVERTER)
            for leaf in pytree.tree_leaves(node.meta.get("val")):
                numbers = [leaf] if torch_api.is_symint(leaf) else []
                if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
                    numbers = [*leaf.shape, *leaf.stride()]
                for number in numbers:
                    free = getattr(torch_api.expr_of(number), "free_symbols", ())
                    if any(torch_api.is_unbacked(s) for s in free):
                        raise self.cannot(f"size {torch_api.expr_of(number)} depends on data", node)
            schema = getattr(node.target, "_schema", None)
            if schema is not None and schema.is_mutable and node.target is not torch.ops.aten.copy_.default:
                raise self.cannot("writes into its arguments", node, ReasonKind.NO_CONVERTER)

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
        return self.inputs.float_param(number)

    # ---- one node ----

    @property
    def fake(self) -> Any:
        """The FakeTensor (or tuple, or number) of the node in translation; None of a node run for its effect."""
        return self.node.meta.get("val")

    def _call(self, node: torch.fx.Node) -> None:
        if node.target is operator.getitem:
            self.env[node] = self.env[node.args[0]][node.args[1]]  # type: ignore[index]  # a tuple's getitem
            return
        if node in self.env:  # an input that was opened
            self._report(node, Kind.METADATA)
            return
        value = node.meta.get("val")
        if torch_api.is_symint(value) or (isinstance(value, int | float | bool) and not draws_random(node.target)):
            plain = not getattr(torch_api.expr_of(value), "free_symbols", None)
            self.env[node] = self.number(value) if plain else SymbolicNumber(torch_api.expr_of(value), type(value))
            self._report(node, Kind.METADATA)
            return
        if node.target is torch.ops.aten.copy_.default:
            self.outputs.copy_into_input(node)
            self._report(node, Kind.METADATA)
            return
        if str(node.target) in _CHECKED_BY_GUARDS:
            self._report(node, Kind.METADATA)
            return
        if node.target in STATE_FUNCTIONS:
            self.env[node] = self.sites.call_node(node, Kind.LIBRARY, fresh=True)
            self._report(node, Kind.LIBRARY)
            return
        try:
            self._convert(node)
        except Refusal as refusal:
            self._fall_back(node, refusal)
        except (
            Exception
        ) as error:  # a fault of a converter, or of TVM: this node runs in ATen, the others as they would
            if self.options.on_compile_error == "raise" or isinstance(error, CannotTranslate):
                raise
            self._fall_back(node, Refusal(ReasonKind.COMPILE, f"{type(error).__name__}: {last_line(error)}"))

    def _sum(self, node: torch.fx.Node, tree: SumOfProducts) -> None:
        """A sum of matrix products as one (products.py), or each of its nodes as it would be alone."""
        nodes = [n for n in self.graph.nodes if n in tree.inner] + [node]
        try:
            self.env[node] = self._checked(node, convert_sum(self, tree), {0})
        except Exception:
            if self.options.on_compile_error == "raise":
                raise
            for self.node in nodes:
                self._call(self.node)
            return
        for n in nodes:
            self._report(n, Kind.LIBRARY)

    def _fall_back(self, node: torch.fx.Node, refusal: Refusal) -> None:
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

    def _convert(self, node: torch.fx.Node) -> None:
        converter = registry().get(node.target)
        if converter is None:
            raise Refusal(ReasonKind.NO_CONVERTER)
        if node.name in self.options.not_native and converter.function is not None:
            raise Refusal(ReasonKind.COMPILE, self.options.not_native[node.name])
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
        self.ran_as = converter.kind
        if node.target in views.VIEW_OPS:
            self.env[node] = self._view(node, converter, args)
        else:
            if (
                len(fakes) == 1
                and isinstance(self.fake, torch.Tensor)
                and is_empty(self.whole_graph_dims(self.fake.shape))
            ):
                result: Value = self.empty(self.fake)
            else:
                result = converter.function(self, *args)
            self.env[node] = self._checked(node, result, consumed)
        self._report(node, self.ran_as)

    def _view(self, node: torch.fx.Node, converter: Converter, args: list[Any]) -> Value:
        """See Note [Roots and places]."""
        assert converter.function is not None
        source = args[0]
        fakes = self.fake if isinstance(self.fake, list | tuple) else [self.fake]
        base = node.args[0].meta["val"]  # type: ignore[union-attr]  # the first argument of a view op is a tensor node
        place = source.place
        shares = all(torch_api.same_storage(f, base) for f in fakes)
        empty = [is_empty(self.whole_graph_dims(f.shape)) for f in fakes]
        if all(empty) or is_empty(source.shape):
            results = [self.empty(f) for f in fakes]
            return tuple(results) if isinstance(self.fake, list | tuple) else results[0]
        if place is not None and node.target is aten.as_strided.default and _leaves(fakes[0], place.root):
            raise self.cannot("as_strided reads what lies outside of its tensor", node, ReasonKind.ARGUMENTS)
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
            self.empty(f)
            if empty[i]
            else TensorValue(lazy(i), self.whole_graph_dims(f.shape), DTYPES[f.dtype], _place(f, place.root))
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
        expected = self.whole_graph_dims(fake.shape)
        ty = value.var.ty
        shape = list(ty.shape.values) if ty.shape is not None else []
        if value.dtype != DTYPES[fake.dtype] or str(ty.dtype) != DTYPES[fake.dtype]:
            raise Refusal(ReasonKind.TYPE_CHECK, f"dtype {ty.dtype} instead of {DTYPES[fake.dtype]}")
        if len(shape) != len(expected) or not all(map(self.symbols.equal, shape, expected)):
            raise Refusal(ReasonKind.TYPE_CHECK, f"shape {list(map(str, shape))} instead of {list(map(str, expected))}")
        place = None
        order = None if node.target in views.VIEW_OPS or is_empty(expected) else dense_order(fake)
        if order == tuple(range(fake.dim())):
            place = Place(
                Root(value.var, fake.storage_offset()), tuple(fake.shape), tuple(fake.stride()), 0, whole=True
            )
        elif order is not None:  # laid out for an output that it is, or that is a view of it
            laid_out = functools.cache(functools.partial(self._laid_out, node, value.var, order))
            root = Root(laid_out, fake.storage_offset(), dense=False)
            place = Place(root, tuple(fake.shape), tuple(fake.stride()), 0)
        return TensorValue(value.var, expected, value.dtype, place)

    def _laid_out(self, node: torch.fx.Node, var: relax.Var, order: Sequence[int]) -> relax.Var:
        return self.emit(layout.permute, [var], order, name=f"{node.name}_laid_out")

    # ---- what converters use ----

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

    def once(self, function: Callable[..., Any], tensor: TensorValue, *args: Any) -> TensorValue:
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

    def refuse(self, kind: ReasonKind, detail: str = "") -> Refusal:
        return Refusal(kind, detail)


#: Ops without effect here: Dynamo's guards have checked what they check.
_CHECKED_BY_GUARDS = frozenset(
    {"aten._assert_tensor_metadata.default", "aten._assert_scalar.default", "aten.sym_constrain_range.default",
     "aten.sym_constrain_range_for_size.default"}
)  # fmt: skip


def _leaves(fake: torch.Tensor, root: Root) -> bool:
    """Whether a strided view of static sizes has elements that its root has not."""
    first = fake.storage_offset() - root.offset
    last = first + sum((n - 1) * s for n, s in zip(fake.shape, fake.stride(), strict=True))
    count = math.prod(int(n) if isinstance(n, int | tirx.IntImm) else -1 for n in root.var.ty.shape.values)
    if not isinstance(first, int) or not isinstance(last, int) or count < 0:
        return False
    return first < 0 or last >= count


def _place(fake: torch.Tensor, root: Root) -> Place:
    return Place(root, tuple(fake.shape), tuple(fake.stride()), fake.storage_offset() - root.offset)


def _plain(size: Any) -> Any:
    return int(size) if isinstance(size, tvm.tirx.IntImm) else size
