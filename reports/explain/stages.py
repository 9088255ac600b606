"""The stages of one model, as tables and listings: what `relaxgrad explain` shows, in the terminal and on the page.

Note [Ties]
Autograd numbers the operations of the forward pass, and AOTAutograd's joint graph keeps the number on what an
operation became and on what differentiates it. So a backward node belongs to the forward node of its number. A node
without one (a gradient that is added up from two) belongs where its first input does.
"""

from __future__ import annotations

import inspect
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from relaxgrad.bridge.capture import capture_joint, capture_pair, describe_node, source_of
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.schemas import CapturedGraph, GraphKind, OutputRole
from relaxgrad.coverage.problem import Problem

NAMES = ("source", "dynamo", "joint", "decomposed", "partition", "relax", "fusion", "kernels")


@dataclass(frozen=True)
class Cell:
    """A cell of a table. `link`: the id of what it leads to; `tie`: shared by all that belong together."""

    text: str
    link: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    cells: tuple[Cell, ...]
    id: str = ""
    tie: str = ""
    css: str = ""


@dataclass(frozen=True)
class Table:
    """A table under a title."""

    title: str
    columns: tuple[str, ...]
    rows: list[Row]


@dataclass(frozen=True)
class Listing:
    """Code or text under a title; long ones are folded on the page."""

    title: str
    text: str
    id: str = ""
    folded: bool = False


@dataclass
class Stage:
    """One stage."""

    name: str  # of NAMES
    title: str
    about: str
    numbers: str  # one line
    blocks: list[Table | Listing] = field(default_factory=list)


def stages(build: Callable[[], Problem], wanted: Sequence[str] = NAMES) -> list[Stage]:
    """The wanted stages of a model; `build` makes its problem anew. Raises UserError for what cannot be captured."""
    makers: dict[str, Callable[[_Model], Stage]] = {
        "source": _source, "dynamo": _dynamo, "joint": _joint, "decomposed": _decomposed,
        "partition": _partition, "relax": _relax, "fusion": _fusion, "kernels": _kernels,
    }  # fmt: skip
    if unknown := [name for name in wanted if name not in makers]:
        raise UserError(f"no stage is called {unknown[0]!r}; stages: {', '.join(NAMES)}")
    model = _Model(build)
    return [makers[name](model) for name in wanted]


class _Model:
    """What several stages need, made when one asks for it."""

    def __init__(self, build: Callable[[], Problem]):
        self.build = build
        self._joints: dict[str, CapturedGraph] = {}
        self._pair: list[CapturedGraph] = []
        self._compiled: list[Any] = []

    def joint(self, decompose: str) -> CapturedGraph:
        if decompose not in self._joints:
            p = self.build()
            loss = p.loss if p.compile_loss else None
            self._joints[decompose] = capture_joint(p.module, p.args, p.kwargs, loss=loss, decompose=decompose)
        return self._joints[decompose]

    def pair(self) -> list[CapturedGraph]:
        if not self._pair:
            p = self.build()
            loss = p.loss if p.compile_loss else None
            self._pair = capture_pair(p.module, p.args, p.kwargs, loss=loss)
        return self._pair

    def compiled(self) -> list[Any]:
        from relaxgrad.bridge.compile.trace import traced

        if not self._compiled:
            self._compiled = [(graph, traced(graph)) for graph in self.pair()]
        return self._compiled


def _calls(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    return [n for n in graph.nodes if n.op == "call_function" and n.target is not operator.getitem]


def _counted(nodes: Iterable[torch.fx.Node]) -> str:
    counts = Counter(str(n.target) for n in nodes)
    return f"{counts.total()} calls of {len(counts)} ops"


def _line(node: torch.fx.Node) -> str:
    source = source_of(node)
    return "" if source is None else str(source)


# ---- from Python to the joint graph ----


def _source(model: _Model) -> Stage:
    module = model.build().module
    blocks: list[Table | Listing] = []
    for kind in dict.fromkeys(type(m) for m in module.modules()):
        if not kind.__module__.startswith("torch."):
            try:
                blocks.append(
                    Listing(f"{kind.__module__}.{kind.__qualname__}", inspect.getsource(kind), folded=bool(blocks))
                )
            except (OSError, TypeError):  # made at run time
                continue
    count = sum(p.numel() for p in module.parameters())
    about = "The modules as they are written, but for torch's own. Everything below comes from running them once."
    return Stage("source", "The model", about, f"{len(blocks)} classes, {count:,} parameters", blocks)


def _dynamo(model: _Model) -> Stage:
    problem = model.build()
    graphs: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    from relaxgrad.bridge import torch_api

    torch_api.dynamo_reset()
    with torch_api.quiet(), torch_api.dynamo_config_patch(allow_rnn=True):
        torch.compile(problem.step_function(), backend=backend)(*problem.args, **problem.kwargs)
    torch_api.dynamo_reset()
    blocks: list[Table | Listing] = [
        Listing(f"graph {i} of {len(graphs)}", gm.print_readable(print_output=False)) for i, gm in enumerate(graphs, 1)
    ]
    nodes = sum(len(gm.graph.nodes) for gm in graphs)
    about = (
        "Dynamo runs the Python bytecode with tensors without data, and writes down the calls of torch: forward only."
    )
    return Stage("dynamo", "Dynamo's forward graph", about, f"{len(graphs)} graph(s), {nodes} nodes", blocks)


def forward_nodes(graph: CapturedGraph) -> set[torch.fx.Node]:
    """The nodes of a joint graph that its forward outputs are made of; the others are the backward pass."""
    (output,) = (n for n in graph.module.graph.nodes if n.op == "output")
    pending = [
        value
        for value, meaning in zip(output.args[0], graph.outputs, strict=True)
        if isinstance(value, torch.fx.Node) and meaning.role is not OutputRole.GRADIENT
    ]
    pending += [n for n in graph.module.graph.nodes if n.target is torch.ops.aten.copy_.default]
    found: set[torch.fx.Node] = set()
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found


def ties(graph: CapturedGraph) -> dict[torch.fx.Node, torch.fx.Node]:
    """For each call of the backward pass, the call of the forward pass that it differentiates: see Note [Ties]."""
    forward = forward_nodes(graph)
    by_number: dict[int, torch.fx.Node] = {}
    for node in _calls(graph.module.graph):
        if node in forward and node.meta.get("seq_nr") is not None:
            by_number[node.meta["seq_nr"]] = node
    found: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.module.graph.nodes:
        if node.op != "call_function" or node in forward:
            continue
        number = node.meta.get("seq_nr")
        tied = by_number.get(number) if number is not None else None
        if tied is None:
            tied = next((found[n] for n in node.all_input_nodes if n in found), None)
        if tied is None:
            tied = next((n for n in reversed(node.all_input_nodes) if n in forward and n.op == "call_function"), None)
        if tied is not None:
            found[node] = tied
    return found


def _joint(model: _Model) -> Stage:
    graph = model.joint("none")
    forward, tied = forward_nodes(graph), ties(graph)
    calls = _calls(graph.module.graph)
    there = [_node_row(n, "joint", "", _tie(n)) for n in calls if n in forward]
    back = [
        _node_row(n, "joint", tied[n].name if n in tied else "", _tie(tied.get(n, n)))
        for n in calls
        if n not in forward
    ]
    signature = [
        Row((Cell(i.name), Cell(i.role), Cell(i.target), Cell(f"{i.dtype} {list(i.shape or ())}")))
        for i in graph.inputs
    ] + [Row((Cell(o.name or "None"), Cell(f"result: {o.role}"), Cell(o.target), Cell(o.dtype))) for o in graph.outputs]
    columns = ("node", "call", "result", "line", "differentiates")
    blocks: list[Table | Listing] = [
        Table("What goes in and comes out", ("name", "role", "of", "type"), signature),
        Table("Forward", columns[:4], there),
        Table("Backward", columns, back),
    ]
    numbers = f"{len(there)} calls forward, {len(back)} backward, {sum(n in tied for n in calls)} of them tied"
    about = (
        "AOTAutograd traces the forward pass together with what autograd does for its backward pass, into one graph of "
        "ATen ops without state. A backward node is tied to the forward node that it differentiates."
    )
    return Stage("joint", "The joint graph", about, numbers, blocks)


def _tie(node: torch.fx.Node) -> str:
    return f"t-{node.name}"


def _node_row(node: torch.fx.Node, stage: str, tied: str = "", tie: str = "") -> Row:
    name, result, call = describe_node(node)
    cells = [Cell(name), Cell(call), Cell(result), Cell(_line(node))]
    if tied:
        cells.append(Cell(tied, f"{stage}-{tied}"))
    return Row(tuple(cells), f"{stage}-{name}", tie)


def _decomposed(model: _Model) -> Stage:
    before, after = model.joint("none"), model.joint("core_aten")

    def groups(graph: CapturedGraph) -> dict[tuple[Any, bool], list[str]]:
        forward = forward_nodes(graph)
        found: dict[tuple[Any, bool], list[str]] = defaultdict(list)
        calls = _calls(graph.module.graph)
        # Autograd's numbers go on from one capture to the next.
        first = min((n.meta["seq_nr"] for n in calls if n.meta.get("seq_nr") is not None), default=0)
        for node in calls:
            number = node.meta.get("seq_nr")
            name = str(node.target).removeprefix("aten.").removesuffix(".default")
            found[None if number is None else number - first, node in forward].append(name)
        return found

    old, new = groups(before), groups(after)
    became: dict[tuple[str, ...], Counter[tuple[str, ...]]] = defaultdict(Counter)
    for key, ops in old.items():
        became[tuple(ops)][tuple(new.get(key, ()))] += 1
    rows = []
    for was, results in became.items():
        for result, count in results.items():
            if Counter(was) != Counter(result):
                texts = (", ".join(_times(was)), ", ".join(_times(result)) or "nothing", str(count))
                rows.append(Row(tuple(map(Cell, texts))))
    numbers = f"{_counted(_calls(before.module.graph))} became {_counted(_calls(after.module.graph))}"
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
    pair = model.pair()
    forward = [g for g in pair if g.kind is not GraphKind.BACKWARD]
    backward = [g for g in pair if g.kind is GraphKind.BACKWARD]
    saved = [
        Row((Cell(o.name or "", f"partition-{o.name}"), Cell(o.dtype), Cell(str(list(o.shape or ())))))
        for g in forward
        for o in g.outputs
        if o.role is OutputRole.SAVED
    ]
    there = {n.name for g in forward for n in _calls(g.module.graph)}
    again = [n for g in backward for n in _calls(g.module.graph) if n.name in there]
    blocks: list[Table | Listing] = [
        Table("Saved for the backward graph", ("node", "dtype", "size"), saved),
        Table("Computed again there", ("node", "call", "result", "line"), [_node_row(n, "again") for n in again]),
    ]
    for graph in pair:
        rows = [
            _node_row(n, "partition" if graph in forward else "backward", "", _tie(n))
            for n in _calls(graph.module.graph)
        ]
        blocks.append(Table(f"The {graph.kind} graph", ("node", "call", "result", "line"), rows))
    numbers = f"{len(saved)} values saved, {len(again)} nodes computed again"
    about = (
        "A minimum cut divides the joint graph in two: what is cheap to compute again from what is saved anyway is not "
        "saved. These graphs are what torch.compile hands to the backend."
    )
    return Stage("partition", "Forward and backward", about, numbers, blocks)


# ---- TVM ----


def _relax(model: _Model) -> Stage:
    blocks: list[Table | Listing] = []
    kernels = 0
    for graph, trace in model.compiled():
        kernels += len(trace.kernels)
        for number, (name, text) in enumerate(trace.mains):
            blocks.append(Listing(f"{graph.kind}: {name}", text, folded=number > 0))
    about = (
        "The importer writes each ATen call as a tensor expression of its own and a call of it. Shown is the function "
        "that calls the kernels, as it was translated and after each pass that changed it."
    )
    return Stage("relax", "Relax", about, f"{len(blocks)} listings, {kernels} kernels in the end", blocks)


def _fusion(model: _Model) -> Stage:
    from relaxgrad.bridge.samples.groups import fused_groups

    rows = []
    for graph, _ in model.compiled():
        for kernel, members in fused_groups(graph):
            names = ", ".join(n.name for n in members)
            rows.append(
                Row(
                    (
                        Cell(kernel, f"kernel-{graph.kind}-{kernel}"),
                        Cell(graph.kind),
                        Cell(str(len(members))),
                        Cell(names),
                    )
                )
            )
    about = "Element-wise work and the index computations of views are computed inside of the kernel that reads them."
    return Stage("fusion", "What fuses into one kernel", about, f"{len(rows)} fused kernels", [
        Table("Groups", ("kernel", "graph", "nodes", "which"), rows)
    ])  # fmt: skip


def _kernels(model: _Model) -> Stage:
    blocks: list[Table | Listing] = []
    seconds = 0.0
    for graph, trace in model.compiled():
        seconds += trace.seconds
        for kernel in trace.kernels:
            title = f"{graph.kind}: {kernel.name} ({kernel.kind})"
            blocks.append(Listing(f"{title}, TIR", kernel.tir, f"kernel-{graph.kind}-{kernel.name}", folded=True))
            if kernel.llvm:
                blocks.append(Listing(f"{title}, LLVM IR", kernel.llvm, folded=True))
    about = (
        "Each kernel as it was scheduled, and what LLVM made of it. A library kernel calls the BLAS; it has no loops."
    )
    return Stage("kernels", "Kernels", about, f"{len(blocks)} listings; passes and code took {seconds:.1f} s", blocks)
