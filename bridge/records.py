# SPDX-License-Identifier: Apache-2.0
"""Records of what became of each graph, and who hears of them."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch.fx

from . import torch_api
from .capture import source_of
from .kinds import Kind, Reason
from .schemas import CapturedGraph, GraphRecord, NodeRecord

if TYPE_CHECKING:
    from .plan import NodeReport
    from .runtime.compiled import Compiled

_counter = itertools.count()
_listeners: list[list[GraphRecord]] = []
_lock = threading.Lock()

#: What a context of `record_graphs` calls at its end, so that graphs still being compiled are recorded.
before_end: list[Callable[[], None]] = []


@contextlib.contextmanager
def record_graphs() -> Iterator[list[GraphRecord]]:
    """A list that receives the GraphRecord of every graph compiled while the context is open, in any thread.

    A graph that a child process compiles is recorded when it is first called, or when the context ends.
    """
    records: list[GraphRecord] = []
    with _lock:
        _listeners.append(records)
    try:
        yield records
        for finish in before_end:
            finish()
    finally:
        with _lock:
            _listeners[:] = [r for r in _listeners if r is not records]


def publish(record: GraphRecord) -> None:
    with _lock:
        for records in _listeners:
            records.append(record)


def record_of(
    captured: CapturedGraph, compiled: Compiled, nodes: Sequence[NodeReport], seconds: dict[str, float]
) -> GraphRecord:
    calls: Counter[Kind] = Counter(n.kind for n in nodes)
    ops: dict[str, Counter[Kind]] = defaultdict(Counter)
    for node in nodes:
        ops[node.op][node.kind] += 1
    return GraphRecord(
        kind=captured.kind,
        index=next(_counter),
        calls=dict(calls),
        ops={op: dict(kinds) for op, kinds in ops.items()},
        reasons=tuple(n.reason for n in nodes if n.reason is not None),
        symbolic=bool(compiled.plan.sources),
        kernels=sum(kernel.kind is Kind.NATIVE for kernel in compiled.kernels.values()),
        seconds=seconds,
        nodes=_node_records(captured.module, nodes),
    )


def record_in_aten(captured: CapturedGraph, reasons: Sequence[Reason], why: Reason) -> GraphRecord:
    """The record of a graph that runs in ATen as a whole; `why` stands for the reasons of one that has no op."""
    ops = Counter(r.op for r in reasons)
    return GraphRecord(
        kind=captured.kind,
        index=next(_counter),
        calls={Kind.FALLBACK: sum(ops.values())},
        ops={op: {Kind.FALLBACK: count} for op, count in ops.items()},
        reasons=tuple(reasons or [why]),
        symbolic=is_symbolic(captured.module),
        kernels=0,
        seconds={},
        nodes=_in_aten_records(reasons),
    )


def planned_nodes(captured: CapturedGraph) -> tuple[NodeRecord, ...]:
    """How each node of a graph would run, with the backend's default options. Translates it; compiles none of it."""
    from .importer.state import CannotTranslate, Options
    from .importer.translate import translate

    with torch_api.real_tensors():
        try:
            options = Options(tuned=captured.device.tuned(captured.module))
            return _node_records(captured.module, translate(captured, options).nodes)
        except CannotTranslate as refusal:
            return _in_aten_records(of_every_op(captured.module, refusal.reason))


def _node_records(gm: torch.fx.GraphModule, reports: Sequence[NodeReport]) -> tuple[NodeRecord, ...]:
    nodes = {node.name: node for node in gm.graph.nodes}
    return tuple(NodeRecord(r.node, r.op, r.kind, source_of(nodes.get(r.node)), r.reason) for r in reports)


def _in_aten_records(reasons: Sequence[Reason]) -> tuple[NodeRecord, ...]:
    return tuple(NodeRecord(r.node, r.op, Kind.FALLBACK, r.source, r) for r in reasons)


def of_every_op(gm: torch.fx.GraphModule, reason: Reason) -> list[Reason]:
    """The reason why the whole graph runs in ATen, for each of its ops: the node that it is about keeps its own."""
    found: list[Reason] = []
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.name == reason.node:  # it may be a higher-order op
            found.append(reason)
            continue
        if node.op != "call_function" or not isinstance(node.target, torch_api.OpOverload):
            continue
        cause = f"with the whole graph, because of {reason.op}" if reason.node else "with the whole graph"
        detail = f"{cause}: {reason.detail}" if reason.detail else cause
        found.append(Reason(reason.kind, str(node.target), node.name, detail, source=source_of(node)))
    return found


def is_symbolic(gm: torch.fx.GraphModule) -> bool:
    """Whether a graph has symbolic sizes."""
    return any(torch_api.has_symbols(node.meta.get("val")) for node in gm.graph.nodes)
