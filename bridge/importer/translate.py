# SPDX-License-Identifier: Apache-2.0
"""FX graph -> Relax module: walks the nodes in order, one converter each, and checks every result's type.

Note [Effectful calls]
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

import operator
from dataclasses import replace
from typing import Any

import torch
import torch.fx
from tvm import relax

from .. import pytree, torch_api
from ..attributes import NEW_VALUES
from ..capture.source import source_of
from ..device import Rewrite
from ..errors import UnsupportedOps, last_line
from ..kinds import Kind, Reason, ReasonKind
from ..plan import CallingPlan, NodeReport, Translation
from ..schemas import CapturedGraph
from . import layouts
from .context import ConversionContext
from .extern_calls import consumed_outputs, draws_random
from .inputs import Inputs
from .outputs import Outputs
from .registry import Call, Implementation, Refusal, bound_arguments, implementations
from .state import CannotTranslate, Options
from .types import is_empty
from .values import SymbolicNumber, Value
from .views import VIEW_OPS
from .wrappers import STATE_FUNCTIONS


def translate(graph: CapturedGraph, options: Options | None = None) -> Translation:
    """Translates a captured graph.

    Nodes without a native or library lowering run in ATen, each with its reason; under `fallback="error"` that raises
    UnsupportedOps with all reasons. Raises CannotTranslate where no Relax function can stand for the graph (sizes that
    depend on data, mutable ops other than a final `copy_`).
    """
    options = options or Options()
    translation = _Translator(graph, options).run()
    if options.fallback == "error" and translation.reasons:
        raise UnsupportedOps(translation.reasons)
    return translation


class _Translator:
    """The walk over the nodes of one graph."""

    def __init__(self, captured: CapturedGraph, options: Options):
        self._ctx = ConversionContext(captured, options)
        self._inputs = Inputs(self._ctx)
        self._outputs = Outputs(self._ctx, self._inputs)
        self._nodes: list[NodeReport] = []

    # ---- the whole graph ----

    def run(self) -> Translation:
        self._refuse_whole_graph()
        self._inputs.read()
        sources = self._inputs.sources()
        symbols = [symbol for symbol, source in sources.items() if source.argument]
        params = [self._ctx.symbols.var(s) for s in symbols] + [var for _, var in self._inputs.params]
        with self._ctx.builder.function("main", params):
            with self._ctx.builder.dataflow():
                rewrites = self._ctx.device.rewrites(self._ctx.graph, self._ctx.options.not_native)
                inner = {n for rewrite in rewrites.values() for n in rewrite.nodes}
                for node in self._ctx.graph.nodes:
                    if node.op != "call_function":
                        continue
                    self._ctx.node = node
                    if node in rewrites:
                        self._rewrite(node, rewrites[node])
                    elif node not in inner:
                        self._call(node)
                outputs, mutations = self._outputs.plan()
                returned = [self._ctx.builder.emit_output(result) for result in self._outputs.results]
            self._ctx.builder.emit_func_output(relax.Tuple(returned))
        for expr in self._ctx.scalars:
            unknown: set[Any] = getattr(expr, "free_symbols", set()) - sources.keys()
            if unknown:
                raise self._ctx.cannot(f"the value of {sorted(map(str, unknown))} is not among the graph's inputs")
        # See Note [Results own their memory].
        compiled = relax.transform.CanonicalizeBindings()(self._ctx.builder.get())
        compiled, kept, read = self._inputs.without_unread(compiled, symbols)
        if pairs := self._outputs.new_values(len(read), kept, outputs, mutations):
            compiled["main"] = compiled["main"].with_attr(NEW_VALUES, pairs)
        return Translation(
            module=compiled,
            plan=CallingPlan(
                sources=[replace(source, argument=symbol in read) for symbol, source in sources.items()],
                scalars=[torch_api.python_source(expr) for expr in self._ctx.scalars],
                params=kept,
                input_count=self._inputs.count,
                constant_count=len(self._inputs.constants),
                split_inputs=self._inputs.split_inputs,
                mutations=mutations,
                outputs=outputs,
                result_count=len(returned),
                extern_calls=self._ctx.extern.table,
            ),
            constants=self._inputs.constants,
            nodes=self._nodes,
            kernels=dict(self._ctx.kernels),
        )

    def _refuse_whole_graph(self) -> None:
        for node in self._ctx.graph.nodes:
            if node.op == "call_module":
                raise self._ctx.cannot("calls a module", node, ReasonKind.NO_CONVERTER)
            for leaf in pytree.tree_leaves(node.meta.get("val")):
                numbers = [leaf] if torch_api.is_symint(leaf) else []
                if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
                    numbers = [*leaf.shape, *leaf.stride()]
                for number in numbers:
                    free = getattr(torch_api.expr_of(number), "free_symbols", ())
                    if any(torch_api.is_unbacked(s) for s in free):
                        raise self._ctx.cannot(f"size {torch_api.expr_of(number)} depends on data", node)
            schema = getattr(node.target, "_schema", None)
            if schema is not None and schema.is_mutable and node.target is not torch.ops.aten.copy_.default:
                raise self._ctx.cannot("writes into its arguments", node, ReasonKind.NO_CONVERTER)

    # ---- one node ----

    def _call(self, node: torch.fx.Node) -> None:
        if node.target is operator.getitem:
            self._ctx.env[node] = self._ctx.env[node.args[0]][node.args[1]]  # type: ignore[index]  # a tuple's getitem
            return
        if node in self._ctx.env:  # an input that is split
            self._report(node, Kind.METADATA)
            return
        value = node.meta.get("val")
        if torch_api.is_symint(value) or (isinstance(value, int | float | bool) and not draws_random(node.target)):
            plain = not getattr(torch_api.expr_of(value), "free_symbols", None)
            self._ctx.env[node] = (
                self._ctx.number(value) if plain else SymbolicNumber(torch_api.expr_of(value), type(value))
            )
            self._report(node, Kind.METADATA)
            return
        if node.target is torch.ops.aten.copy_.default:
            self._outputs.copy_into_input(node)
            self._report(node, Kind.METADATA)
            return
        if str(node.target) in _CHECKED_BY_GUARDS:
            self._report(node, Kind.METADATA)
            return
        if node.target in STATE_FUNCTIONS:
            self._ctx.env[node] = self._ctx.extern.call_node(node, Kind.LIBRARY, non_aliasing=True)
            self._report(node, Kind.LIBRARY)
            return
        try:
            self._convert(node)
        except Refusal as refusal:
            self._fall_back(node, refusal)
        except (
            Exception
        ) as error:  # a fault of a converter, or of TVM: this node runs in ATen, the others as they would
            if self._ctx.options.on_compile_error == "raise" or isinstance(error, CannotTranslate):
                raise
            self._fall_back(node, Refusal(ReasonKind.COMPILE, f"{type(error).__name__}: {last_line(error)}"))

    def _rewrite(self, node: torch.fx.Node, rewrite: Rewrite) -> None:
        """Nodes that are converted together, or each as it would be alone."""
        try:
            self._ctx.env[node] = layouts.checked(self._ctx, node, rewrite.convert(self._ctx), {0})
        except Exception:
            if self._ctx.options.on_compile_error == "raise":
                raise
            for self._ctx.node in rewrite.nodes:
                self._call(self._ctx.node)
            return
        for n in rewrite.nodes:
            self._report(n, rewrite.kind)

    def _fall_back(self, node: torch.fx.Node, refusal: Refusal) -> None:
        reason = self._reason(node, refusal)
        self._ctx.env[node] = self._ctx.extern.call_node(node, Kind.FALLBACK)
        self._report(node, Kind.FALLBACK, reason)

    def _report(self, node: torch.fx.Node, kind: Kind, reason: Reason | None = None) -> None:
        self._nodes.append(NodeReport(node.name, str(node.target), kind, reason))

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
        """By the first implementation that takes the node. Raises the first Refusal where none does."""
        call = Call(node, self._ctx.device, self._ctx.options.tuned)
        consumed = consumed_outputs(node)
        refused: Refusal | None = None
        for way in implementations(node.target, self._ctx.device):
            if node.name in self._ctx.options.not_native and way.function is not None:
                refused = refused or Refusal(ReasonKind.COMPILE, self._ctx.options.not_native[node.name])
                continue
            try:
                if refusal := way.refusal(call, consumed):
                    raise refusal
                self._ctx.env[node] = self._value(node, way, consumed)
            except Refusal as refusal:
                refused = refused or refusal
                continue
            self._report(node, way.kind)
            return
        raise refused or Refusal(ReasonKind.NO_CONVERTER)

    def _value(self, node: torch.fx.Node, way: Implementation, consumed: set[int]) -> Value:
        if way.function is None:
            return self._ctx.extern.call_node(node, way.kind, non_aliasing=True)
        args = bound_arguments(node, self._ctx.env.__getitem__)
        fake = self._ctx.fake
        if node.target in VIEW_OPS:
            return layouts.view(self._ctx, node, way.function, args)
        if isinstance(fake, torch.Tensor) and is_empty(self._ctx.whole_graph_dims(fake.shape)):
            result: Value = self._ctx.empty(fake)
        else:
            result = way.function(self._ctx, *args)
        return layouts.checked(self._ctx, node, result, consumed)


#: Ops without effect here: Dynamo's guards have checked what they check.
_CHECKED_BY_GUARDS = frozenset(
    {"aten._assert_tensor_metadata.default", "aten._assert_scalar.default", "aten.sym_constrain_range.default",
     "aten.sym_constrain_range_for_size.default"}
)  # fmt: skip
