"""The torch.compile backend: AOTAutograd's graphs through importer, compiler and runtime. Glue only."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from . import logs, torch_api
from .capture import decompositions, describe, source_of
from .errors import UnsupportedOps, UserError
from .kinds import Kind, Reason, ReasonKind
from .schemas import CapturedGraph, GraphKind, GraphRecord, NodeRecord
from .threads import settle_pools

if TYPE_CHECKING:
    from .compile.cache_key import Key
    from .importer.translate import Options
    from .importer.translation import NodeReport, Translation
    from .runtime.compiled import Compiled

_counter = itertools.count()
_listeners: list[list[GraphRecord]] = []
_lock = threading.Lock()
_loaded = time.time()

#: The options and the values that each takes; the first is the default.
OPTIONS = {
    "fallback": ("aten", "error"),
    "target": ("llvm",),
    "on_compile_error": ("aten", "raise"),
    "cache": ("on", "off"),
}


@dataclass(frozen=True)
class BackendOptions:
    """What `torch.compile(model, backend="relaxgrad", options={...})` takes."""

    fallback: str = "aten"
    target: str = "llvm"
    on_compile_error: str = "aten"
    cache: str = "on"


def relaxgrad(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """Compiles a Dynamo graph and its backward through TVM: `torch.compile(model, backend="relaxgrad")`.

    `options` (a dict):
    - `fallback`: "aten" runs an op without a lowering in ATen inside the compiled graph; "error" raises UnsupportedOps
      with the reasons of the forward and the backward graph, each with the line of the model. torch.compile wraps it in
      BackendCompilerFailed: the message has the list, `error.inner_exception.reasons` has the values.
    - `target`: "llvm" (this machine's CPU), or another target as `compile.target.resolve_target` takes it.
    - `on_compile_error`, for debugging the bridge: "aten" makes a fault of a converter or of TVM one more reason for
      ATen; "raise" raises it.
    - `cache`: "on" keeps compiled graphs for the next process; "off", as RELAXGRAD_CACHE=0 in the environment, compiles
      anew and keeps nothing.

    RELAXGRAD_LOGS in the environment prints what becomes of each graph: see logs.py. Raises UserError for other
    options, and for a `mode`, which is Inductor's.
    """
    if unknown := kwargs.keys() - {"options"}:
        raise UserError(
            f"backend relaxgrad takes no {', '.join(sorted(unknown))}; what it takes is options={{...}} with: "
            f"{', '.join(OPTIONS)}"
        )
    options = _options(kwargs.get("options"))
    logs.wanted()  # raises for a name that is none, before anything is compiled

    def compiler(kind: GraphKind) -> Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]:
        return lambda graph, _: compile_graph(graph, kind, options)

    extra = {"partition_fn": _refusing_partition(options)} if options.fallback == "error" else {}
    backend = torch_api.aot_backend(
        fw_compiler=compiler(GraphKind.FORWARD),
        bw_compiler=compiler(GraphKind.BACKWARD),
        inference_compiler=compiler(GraphKind.INFERENCE),
        decompositions=decompositions("core_aten"),
        **extra,
    )
    return backend(gm, example_inputs)


def _options(options: Mapping[str, Any] | None) -> BackendOptions:
    given = dict(options or {})
    for name, value in given.items():
        if name not in OPTIONS:
            raise UserError(f"unknown option {name!r} for backend relaxgrad; known: {', '.join(OPTIONS)}")
        if name != "target" and value not in OPTIONS[name]:
            raise UserError(f"option {name}={value!r} is unknown; use one of {', '.join(OPTIONS[name])}")
    return BackendOptions(**given)


def _refusing_partition(options: BackendOptions) -> Callable[..., Any]:
    """The partitioner, after which both graphs are translated, so that one exception has the reasons of both."""

    def partition(*args: Any, **kwargs: Any) -> Any:
        forward, backward = torch_api.partition(*args, **kwargs)
        reasons: list[Reason] = []
        for graph, kind in ((forward, GraphKind.FORWARD), (backward, GraphKind.BACKWARD)):
            reasons += _refusals(graph, kind, options)
        if reasons:
            raise UnsupportedOps(reasons)
        return forward, backward

    return partition


def _refusals(gm: torch.fx.GraphModule, kind: GraphKind, options: BackendOptions) -> Sequence[Reason]:
    """Every reason for which a node of the graph would run in ATen. Compiles nothing."""
    captured = describe(gm, kind)
    with torch_api.real_tensors():
        if _kept(captured, options)[1] is not None:  # under these options, which refuse: it had none
            return ()
        from .importer.translate import CannotTranslate, Options, translate

        try:
            return translate(captured, Options(on_compile_error=options.on_compile_error)).reasons
        except CannotTranslate as refusal:
            return _of_every_op(gm, refusal.reason)


torch_api.trace_recurrent_layers(relaxgrad)


def compile(model: Any, **kwargs: Any) -> Any:
    """`torch.compile(model, backend="relaxgrad", ...)`, for those who import the backend anyway."""
    return torch.compile(model, backend=relaxgrad, **kwargs)


@contextlib.contextmanager
def record_graphs() -> Iterator[list[GraphRecord]]:
    """A list that receives the GraphRecord of every graph compiled while the context is open, in any thread."""
    records: list[GraphRecord] = []
    with _lock:
        _listeners.append(records)
    try:
        yield records
    finally:
        with _lock:
            _listeners[:] = [r for r in _listeners if r is not records]


def compile_graph(
    gm: torch.fx.GraphModule,
    kind: GraphKind,
    options: BackendOptions = BackendOptions(),  # frozen
) -> Callable[..., Any]:
    """One AOTAutograd graph as a boxed callable.

    A graph that TVM cannot take as a whole runs in ATen, each of its ops with the reason; under `fallback="error"` that
    raises UnsupportedOps.
    """
    captured = describe(gm, kind)
    with torch_api.real_tensors():
        try:
            return _on_tvm(captured, options)
        except (UnsupportedOps, UserError):
            raise
        except Exception as error:  # a fault of ours or of TVM in one graph must not end the user's training
            from .importer.translate import CannotTranslate, last_line

            if isinstance(error, CannotTranslate):
                return _in_aten(captured, error.reason, options)
            if options.on_compile_error == "raise":
                raise
            reason = Reason(ReasonKind.COMPILE, "graph", "", f"{type(error).__name__}: {last_line(error)}")
            return _in_aten(captured, reason, options)


def _on_tvm(captured: CapturedGraph, options: BackendOptions) -> Callable[..., Any]:
    """A graph as an Executable: out of the cache, or else translated and compiled."""
    from .compile import cache
    from .importer.constants import constants
    from .runtime.executable import Executable

    settle_pools()
    start = time.perf_counter()
    key, compiled = _kept(captured, options)
    if key is not None and compiled is not None:
        nodes = cache.reports(compiled, key, captured.module)
        seconds = {"translate": 0.0, "compile": 0.0, "cache": time.perf_counter() - start}
    else:
        compiled, nodes, seconds = _compiled(captured, options, key)
    record = _record(captured, compiled, nodes, seconds)
    _publish(record)
    logs.show(captured, record, options.target)
    return Executable(compiled, constants(captured.module), record)


def _kept(captured: CapturedGraph, options: BackendOptions) -> tuple[Key | None, Compiled | None]:
    """The key of a graph, None where it is not cached, and what the cache has under it, None where it has nothing."""
    from .compile import cache

    key = cache.key_of(captured, astuple(options), _loaded) if options.cache == "on" else None
    return key, None if key is None else cache.find(key)


def _compiled(
    captured: CapturedGraph, options: BackendOptions, key: Key | None
) -> tuple[Compiled, list[NodeReport], dict[str, float]]:
    """(a graph compiled and kept under `key`, how its nodes run, seconds of each stage).

    Nodes whose kernel TVM fails to compile run in ATen.
    """
    from .compile import cache
    from .compile.pipeline import compile_module
    from .compile.target import resolve_target
    from .importer.translate import Options, translate
    from .runtime.compiled import Compiled

    target = resolve_target(options.target)
    guards = torch_api.guards_of(captured.module)
    start = time.perf_counter()
    how = Options(fallback=options.fallback, on_compile_error=options.on_compile_error)
    translation = translate(captured, how)
    translated = time.perf_counter()
    sound = torch_api.guards_of(captured.module) == guards  # see Note [What is kept] in compile/cache.py
    try:
        executable, kernels = compile_module(translation.module, target)
    except Exception:
        if options.on_compile_error == "raise":
            raise
        sound = False
        translation, executable, kernels = _without_culprits(captured, translation, target, how)
    compiled = Compiled(executable.jit(), translation.plan, translation.nodes, kernels)
    if key is not None and sound:
        compiled = cache.keep(key, executable, compiled, _loaded)
    seconds = {"translate": translated - start, "compile": time.perf_counter() - translated}
    return compiled, translation.nodes, seconds


def _record(
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
        kernels=sum(kind is Kind.NATIVE for kind in compiled.kernels.values()),
        seconds=seconds,
        nodes=_node_records(captured.module, nodes),
    )


def planned_nodes(captured: CapturedGraph) -> tuple[NodeRecord, ...]:
    """How each node of a graph would run, with the backend's default options. Translates it; compiles nothing."""
    from .importer.translate import CannotTranslate, Options, translate

    with torch_api.real_tensors():
        try:
            return _node_records(captured.module, translate(captured, Options()).nodes)
        except CannotTranslate as refusal:
            return _in_aten_records(_of_every_op(captured.module, refusal.reason))


def _node_records(gm: torch.fx.GraphModule, reports: Sequence[NodeReport]) -> tuple[NodeRecord, ...]:
    nodes = {node.name: node for node in gm.graph.nodes}
    return tuple(NodeRecord(r.node, r.op, r.kind, source_of(nodes.get(r.node)), r.reason) for r in reports)


def _in_aten_records(reasons: Sequence[Reason]) -> tuple[NodeRecord, ...]:
    return tuple(NodeRecord(r.node, r.op, Kind.FALLBACK, r.source, r) for r in reasons)


def _without_culprits(
    captured: CapturedGraph, failed: Translation, target: Any, how: Options
) -> tuple[Translation, Any, dict[str, Kind]]:
    """(translation, executable, kernels) of a graph that TVM failed to compile: first without the nodes whose kernel
    fails alone, then without fusion. Raises what TVM raises in the end."""
    from .compile.blame import culprits, unfused
    from .compile.pipeline import compile_module
    from .importer.translate import translate

    if nodes := culprits(failed, lambda module: compile_module(module, target)):
        failed = translate(captured, replace(how, not_native=nodes))
        with contextlib.suppress(Exception):  # fusion may fail as well
            return failed, *compile_module(failed.module, target)
    return failed, *compile_module(unfused(failed.module), target)


def _of_every_op(gm: torch.fx.GraphModule, reason: Reason) -> list[Reason]:
    """The reason why the whole graph runs in ATen, for each of its ops: the node that it is about keeps its own."""
    found: list[Reason] = []
    for node in gm.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch_api.OpOverload):
            continue
        if node.name == reason.node:
            found.append(reason)
            continue
        cause = f"with the whole graph, because of {reason.op}" if reason.node else "with the whole graph"
        detail = f"{cause}: {reason.detail}" if reason.detail else cause
        found.append(Reason(reason.kind, str(node.target), node.name, detail, source=source_of(node)))
    return found


def _in_aten(captured: CapturedGraph, reason: Reason, options: BackendOptions) -> Callable[..., Any]:
    gm = captured.module
    reasons = _of_every_op(gm, reason)
    if options.fallback == "error":
        raise UnsupportedOps(reasons or [reason])
    ops = Counter(r.op for r in reasons)
    record = GraphRecord(
        kind=captured.kind,
        index=next(_counter),
        calls={Kind.FALLBACK: sum(ops.values())},
        ops={op: {Kind.FALLBACK: count} for op, count in ops.items()},
        reasons=tuple(reasons or [reason]),
        symbolic=any(torch_api.has_symbols(n.meta.get("val")) for n in gm.graph.nodes),
        kernels=0,
        seconds={},
        nodes=_in_aten_records(reasons),
    )
    _publish(record)
    logs.show(captured, record, options.target)
    return torch_api.make_boxed_func(gm.forward)


def _publish(record: GraphRecord) -> None:
    with _lock:
        for records in _listeners:
            records.append(record)
