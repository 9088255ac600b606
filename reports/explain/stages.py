# SPDX-License-Identifier: Apache-2.0
"""The stages of one model, as tables and listings: what `relaxgrad explain` shows, in the terminal and on the page."""

from __future__ import annotations

import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from relaxgrad.bridge.capture import capture_joint, capture_pair, describe_node, source_of
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.schemas import CapturedGraph, GraphKind, OutputRole
from relaxgrad.coverage.harness.problem import Problem

from .blocks import Cell, Listing, Row, Stage, Table, calls_in, count, listed
from .correspondence import Keys, calls_of, correspondence, forward_nodes

if TYPE_CHECKING:
    from relaxgrad.bridge.compile.inspect.trace import Trace
    from relaxgrad.bridge.plan import Translation

NAMES = ("source", "dynamo", "joint", "decomposed", "partition", "relax", "fusion", "kernels")


def stages(build: Callable[[], Problem], wanted: Sequence[str] = NAMES) -> list[Stage]:
    """The wanted stages of a model; `build` makes its problem anew. Raises UserError for what cannot be captured."""
    makers: dict[str, Callable[[_Model], Stage]] = {
        "source": _source, "dynamo": _dynamo, "joint": _joint, "decomposed": _decomposed,
        "partition": _partition, "relax": _relax, "fusion": _fusion, "kernels": _kernels,
    }  # fmt: skip
    if unknown := [name for name in wanted if name not in makers]:
        raise UserError(f"no stage is called {unknown[0]!r}; stages: {', '.join(NAMES)}")
    model = _Model(build, code="kernels" in wanted)
    return [makers[name](model) for name in wanted]


class _Model:
    """What several stages need, made when one asks for it. `code`: whether one asks for the code of the kernels."""

    def __init__(self, build: Callable[[], Problem], code: bool):
        self.build = build
        self.code = code
        self._joints: dict[str, CapturedGraph] = {}

    def joint(self, decompose: str) -> CapturedGraph:
        if decompose not in self._joints:
            p = self.build()
            loss = p.loss if p.compile_loss else None
            self._joints[decompose] = capture_joint(p.module, p.args, p.kwargs, loss=loss, decompose=decompose)
        return self._joints[decompose]

    @cached_property
    def pair(self) -> list[CapturedGraph]:
        p = self.build()
        loss = p.loss if p.compile_loss else None
        return capture_pair(p.module, p.args, p.kwargs, loss=loss)

    @cached_property
    def traces(self) -> list[Trace]:
        from relaxgrad.bridge.compile.inspect.trace import traced

        return [traced(graph, code=self.code) for graph in self.pair]

    @cached_property
    def translations(self) -> list[Translation]:
        return [trace.translation for trace in self.traces]

    @cached_property
    def kernels(self) -> list[dict[str, list[str]]]:
        """For each graph of the pair: kernel that is called in the end -> names of the nodes that it computes."""
        from relaxgrad.bridge.compile.passes.in_place import before_in_place

        found = []
        for trace, translation in zip(self.traces, self.translations, strict=True):
            order = {report.node: number for number, report in enumerate(translation.nodes)}
            there = calls_in(trace.mains[-1][1])
            own = {k: translation.kernels.get(before_in_place(k), set()) for k in there}
            alone = {k: sorted(nodes, key=lambda n: order.get(n, 0)) for k, nodes in own.items() if nodes}
            found.append({k: nodes for k, nodes in (alone | trace.groups).items() if k in there})
        return found

    @cached_property
    def keys(self) -> Keys:
        return Keys(self.joint("none"))

    @cached_property
    def pair_keys(self) -> dict[str, dict[str, str]]:
        """Kind of the graph -> name of a node -> its key."""
        found = self.keys.others(n for g in self.pair for n in calls_of(g.module.graph))
        return {
            graph.kind: {n.name: found[n] for n in calls_of(graph.module.graph) if n in found} for graph in self.pair
        }

    def keys_of(self, graph: CapturedGraph, names: Iterable[str]) -> tuple[str, ...]:
        """The keys of some nodes of a graph of the pair."""
        keys = self.pair_keys[graph.kind]
        return tuple(dict.fromkeys(keys[name] for name in names if name in keys))


def _counted(nodes: Iterable[torch.fx.Node]) -> str:
    counts = Counter(str(n.target) for n in nodes)
    return f"{counts.total()} calls of {len(counts)} ops"


def _line(node: torch.fx.Node) -> Cell:
    source = source_of(node)
    return Cell("") if source is None else Cell(str(source), _line_id(source.file, source.line))


def _line_id(file: str, line: int) -> str:
    return f"line-{file}-{line}"


def _type(dtype: str, shape: Sequence[str] | None) -> str:
    return f"{dtype}[{', '.join(shape or ())}]" if dtype else ""


# ---- from Python to the joint graph ----


def _source(model: _Model) -> Stage:
    module = model.build().module
    blocks: list[Table | Listing] = []
    for kind in dict.fromkeys(type(m) for m in module.modules()):
        if not kind.__module__.startswith("torch."):
            try:
                lines, start = inspect.getsourcelines(kind)
                file = inspect.getsourcefile(kind) or ""
            except (OSError, TypeError):  # made at run time
                continue
            ids = {number: _line_id(file, start + number) for number in range(len(lines))}
            title = f"{kind.__module__}.{kind.__qualname__}"
            blocks.append(Listing(title, "".join(lines), folded=bool(blocks), lines=ids))
    size = sum(p.numel() for p in module.parameters())
    about = "The modules as they are written, but for torch's own. Everything below comes from running them once."
    numbers = f"{count(len(blocks), 'class', 'classes')}, {count(size, 'parameter')}"
    return Stage("source", "The model", about, numbers, blocks)


def _dynamo(model: _Model) -> Stage:
    problem = model.build()
    graphs: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    from relaxgrad.bridge import torch_api

    torch.compiler.reset()
    with torch_api.quiet(), torch_api.dynamo_config_patch(allow_rnn=True):
        torch.compile(problem.step_function(), backend=backend)(*problem.args, **problem.kwargs)
    torch.compiler.reset()
    blocks: list[Table | Listing] = [
        Listing(f"graph {i} of {len(graphs)}", gm.print_readable(print_output=False)) for i, gm in enumerate(graphs, 1)
    ]
    nodes = sum(len(gm.graph.nodes) for gm in graphs)
    about = (
        "Dynamo runs the Python bytecode with tensors without data, and writes down the calls of torch: forward only."
    )
    return Stage(
        "dynamo", "Dynamo's forward graph", about, f"{count(len(graphs), 'graph')}, {count(nodes, 'node')}", blocks
    )


def _joint(model: _Model) -> Stage:
    graph, keys = model.joint("none"), model.keys
    forward, matched = forward_nodes(graph), correspondence(graph)
    calls = calls_of(graph.module.graph)
    there = [_node_row(n, "joint", (keys.joint(n),)) for n in calls if n in forward]
    back = [
        _node_row(n, "joint", (keys.joint(n),), _node_link(matched.get(n), "joint")) for n in calls if n not in forward
    ]
    signature = [
        Row((Cell(i.name), Cell(i.role), Cell(i.target), Cell(_type(i.dtype, i.shape)))) for i in graph.inputs
    ] + [
        Row(
            (
                Cell(o.name or "None", f"joint-{o.name}"),
                Cell(f"result: {o.role}"),
                Cell(o.target),
                Cell(_type(o.dtype, o.shape)),
            )
        )
        for o in graph.outputs
    ]
    columns = ("node", "call", "result", "line", "differentiates")
    blocks: list[Table | Listing] = [
        Table("What goes in and comes out", ("name", "role", "of", "type"), signature),
        Table("Forward", columns[:4], there),
        Table("Backward", columns, back),
    ]
    paired = sum(n in matched for n in calls)
    numbers = f"{count(len(there), 'call')} forward, {len(back):,} backward, {paired:,} of them matched"
    about = (
        "AOTAutograd traces the forward pass together with what autograd does for its backward pass, into one graph of "
        "ATen ops without state. A backward node corresponds to the forward node that it differentiates."
    )
    return Stage("joint", "The joint graph", about, numbers, blocks)


def _node_link(node: torch.fx.Node | None, stage: str) -> Cell:
    return Cell("") if node is None else Cell(node.name, f"{stage}-{node.name}")


def _node_row(node: torch.fx.Node, stage: str, keys: tuple[str, ...], *more: Cell) -> Row:
    name, result, call = describe_node(node)
    return Row((Cell(name), Cell(call), Cell(result), _line(node), *more), f"{stage}-{name}", keys)


def _decomposed(model: _Model) -> Stage:
    before, after = model.joint("none"), model.joint("core_aten")
    forward = forward_nodes(before), forward_nodes(after)
    calls = calls_of(before.module.graph), calls_of(after.module.graph)
    keys = {n: model.keys.joint(n) for n in calls[0]}, model.keys.others(calls[1])

    def groups(which: int) -> dict[tuple[str, bool], list[str]]:
        found: dict[tuple[str, bool], list[str]] = defaultdict(list)
        for node in calls[which]:
            name = str(node.target).removeprefix("aten.").removesuffix(".default")
            found[keys[which].get(node, ""), node in forward[which]].append(name)
        return found

    old, new = groups(0), groups(1)
    became: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for key, ops in old.items():
        became[tuple(ops), tuple(new.get(key, ()))].append(key[0])
    rows: list[Row] = []
    for (was, result), where in became.items():
        if Counter(was) != Counter(result):
            texts = (", ".join(_times(was)), ", ".join(_times(result)) or "nothing", str(len(where)))
            rows.append(Row(tuple(map(Cell, texts)), f"decomposed-{len(rows)}", tuple(dict.fromkeys(where))))
    numbers = f"{_counted(calls[0])} became {_counted(calls[1])}"
    about = (
        "Composite ops are taken apart into core ATen, so that the importer needs few converters and fusion sees "
        "through. A row is what one operation of the model, or its backward, was and became."
    )
    return Stage(
        "decomposed",
        "The decomposition",
        about,
        numbers,
        [Table("What became of it", ("was", "became", "times"), rows)],
    )


def _times(ops: Iterable[str]) -> list[str]:
    return [f"{op} x{n}" if n > 1 else op for op, n in Counter(ops).items()]


def _partition(model: _Model) -> Stage:
    backward = [g for g in model.pair if g.kind is GraphKind.BACKWARD]
    forward = [g for g in model.pair if g not in backward]
    saved = [
        Row((Cell(o.name or "", f"{g.kind}-{o.name}"), Cell(_type(o.dtype, o.shape))))
        for g in forward
        for o in g.outputs
        if o.role is OutputRole.SAVED
    ]
    there = {n.name for g in forward for n in calls_of(g.module.graph)}
    again = [
        Row((_node_link(n, g.kind), *map(Cell, reversed(describe_node(n)[1:])), _line(n)))
        for g in backward
        for n in calls_of(g.module.graph)
        if n.name in there
    ]
    blocks: list[Table | Listing] = [
        Table("Saved for the backward graph", ("node", "type"), saved),
        Table("Computed again there", ("node", "call", "result", "line"), again),
    ]
    starts = {
        key: Cell(name, f"{g.kind}-{name}") for g in forward for name, key in reversed(model.pair_keys[g.kind].items())
    }
    for graph, kernels, translation in zip(model.pair, model.kernels, model.translations, strict=True):
        kinds = {report.node: report.kind for report in translation.nodes}
        runs = _inverted(kernels)
        keys = model.pair_keys[graph.kind]
        rows = []
        for n in calls_of(graph.module.graph):
            computing = listed([Cell(k, f"kernel-{graph.kind}-{k}") for k in runs.get(n.name, ())])
            more = [Cell(kinds.get(n.name, "")), computing]
            if graph in backward:
                more.append(starts.get(keys.get(n.name, ""), Cell("")))
            rows.append(_node_row(n, graph.kind, model.keys_of(graph, [n.name]), *more))
        columns = ("node", "call", "result", "line", "runs as", "kernel", "differentiates")
        blocks.append(Table(f"The {graph.kind} graph", columns if graph in backward else columns[:6], rows))
    numbers = f"{count(len(saved), 'value')} saved, {count(len(again), 'node')} computed again"
    about = (
        "A minimum cut divides the joint graph in two: what is cheap to compute again from what is saved anyway is not "
        "saved. These graphs are what torch.compile hands to the backend."
    )
    return Stage("partition", "Forward and backward", about, numbers, blocks)


def _inverted(kernels: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for kernel, nodes in kernels.items():
        for node in nodes:
            found[node].append(kernel)
    return found


# ---- TVM ----


def _relax(model: _Model) -> Stage:
    blocks: list[Table | Listing] = []
    for graph, trace, translation, kernels in zip(
        model.pair, model.traces, model.translations, model.kernels, strict=True
    ):
        code = {kernel: f"kernel-{graph.kind}-{kernel}" for kernel in kernels}
        nodes = {k: f"{graph.kind}-{next(iter(of))}" for k, of in translation.kernels.items() if len(of) == 1}
        for number, (name, text) in enumerate(trace.mains):
            calls = code if number else nodes
            blocks.append(Listing(f"{graph.kind}: {name}", text, folded=number > 0, calls=calls))
    about = (
        "The importer writes each ATen call as a tensor expression of its own and a call of it. Shown is the function "
        "that calls the kernels, as it was translated and after each pass that changed it."
    )
    numbers = f"{count(len(blocks), 'listing')}, {count(sum(map(len, model.kernels)), 'kernel')} in the end"
    return Stage("relax", "Relax", about, numbers, blocks)


def _fusion(model: _Model) -> Stage:
    rows = []
    for graph, trace in zip(model.pair, model.traces, strict=True):
        for kernel, members in trace.groups.items():
            cells = (
                Cell(kernel, f"kernel-{graph.kind}-{kernel}"),
                Cell(graph.kind),
                Cell(str(len(members))),
                listed([Cell(name, f"{graph.kind}-{name}") for name in members]),
            )
            rows.append(Row(cells, f"fusion-{graph.kind}-{kernel}", model.keys_of(graph, members)))
    about = "Element-wise work and the index computations of views are computed inside of the kernel that reads them."
    numbers = count(len(rows), "fused kernel")
    table = Table("Groups", ("kernel", "graph", "nodes", "which"), rows)
    return Stage("fusion", "What fuses into one kernel", about, numbers, [table])


def _kernels(model: _Model) -> Stage:
    blocks: list[Table | Listing] = []
    for graph, trace, nodes in zip(model.pair, model.traces, model.kernels, strict=True):
        for kernel in trace.kernels:
            title = f"{graph.kind}: {kernel.name} ({kernel.kind})"
            id_, keys = f"kernel-{graph.kind}-{kernel.name}", model.keys_of(graph, nodes.get(kernel.name, ()))
            blocks.append(Listing(f"{title}, TIR", kernel.tir, id_, folded=True, keys=keys))
            if kernel.code:
                blocks.append(Listing(f"{title}, LLVM IR", kernel.code, folded=True))
    about = (
        "Each kernel as it was scheduled, and what LLVM made of it. A library kernel calls the BLAS; it has no loops."
    )
    seconds = sum(trace.seconds for trace in model.traces)
    numbers = f"{count(len(blocks), 'listing')}; passes and code took {seconds:.1f} s"
    return Stage("kernels", "Kernels", about, numbers, blocks)
