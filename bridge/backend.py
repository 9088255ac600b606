"""The torch.compile backend: AOTAutograd's graphs through importer, compiler and runtime. Glue only."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx

from . import torch_api
from .capture import decompositions, describe
from .errors import UnsupportedOps, UserError
from .kinds import Kind, Reason, ReasonKind
from .schemas import GraphKind, GraphRecord

_counter = itertools.count()
_listeners: list[list[GraphRecord]] = []
_lock = threading.Lock()

FALLBACK_MODES = ("aten", "error")


def relaxgrad(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """Compiles a Dynamo graph and its backward through TVM: `torch.compile(model, backend="relaxgrad")`.

    `options`: `fallback` = "aten" (an op without a lowering runs in ATen inside the compiled graph) or "error" (raises
    UnsupportedOps with every reason), `target` = "llvm" (this machine's CPU). Raises UserError for other options.
    """
    options = _options(kwargs.get("options"))

    def compiler(kind: GraphKind) -> Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]:
        return lambda graph, _: compile_graph(graph, kind, **options)

    backend = torch_api.aot_backend(
        fw_compiler=compiler(GraphKind.FORWARD),
        bw_compiler=compiler(GraphKind.BACKWARD),
        inference_compiler=compiler(GraphKind.INFERENCE),
        decompositions=decompositions("core_aten"),
    )
    return backend(gm, example_inputs)


def _options(options: dict[str, Any] | None) -> dict[str, str]:
    chosen = {"fallback": "aten", "target": "llvm"}
    for name, value in (options or {}).items():
        if name not in chosen:
            raise UserError(f"unknown option {name!r} for backend relaxgrad; known: {', '.join(chosen)}")
        chosen[name] = value
    if chosen["fallback"] not in FALLBACK_MODES:
        raise UserError(f"option fallback={chosen['fallback']!r} is unknown; use one of {', '.join(FALLBACK_MODES)}")
    return chosen


def compile(model: Any, **kwargs: Any) -> Any:
    """`torch.compile(model, backend="relaxgrad", ...)`, and recurrent layers (nn.LSTM, nn.GRU, nn.RNN) traced as well."""
    compiled = torch.compile(model, backend=relaxgrad, **kwargs)
    return compiled


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
    gm: torch.fx.GraphModule, kind: GraphKind, *, fallback: str = "aten", target: str = "llvm"
) -> Callable[..., Any]:
    """One AOTAutograd graph as a boxed callable.

    A graph that TVM cannot take as a whole runs in ATen, each of its ops with the reason; under `fallback="error"` that
    raises UnsupportedOps.
    """
    from .compile.pipeline import compile_module
    from .compile.target import resolve_target
    from .importer.translate import CannotTranslate, translate
    from .runtime.executable import Executable

    resolved = resolve_target(target)
    start = time.perf_counter()
    captured = describe(gm, kind)
    with torch_api.real_tensors():
        try:
            translation = translate(captured, fallback=fallback)
            translated = time.perf_counter()
            executable, kernels = compile_module(translation.module, resolved)
        except CannotTranslate as refusal:
            return _in_aten(gm, kind, refusal.reason, fallback)
        except (UnsupportedOps, UserError):
            raise
        except Exception as error:  # a fault of ours or of TVM in one graph must not end the user's training
            reason = Reason(ReasonKind.COMPILE, "graph", "", f"{type(error).__name__}: {_first_line(error)}")
            if _strict():
                raise
            return _in_aten(gm, kind, reason, fallback)
        done = time.perf_counter()
        calls: Counter[Kind] = Counter(n.kind for n in translation.nodes)
        ops: dict[str, Counter[Kind]] = defaultdict(Counter)
        for node in translation.nodes:
            ops[node.op][node.kind] += 1
        record = GraphRecord(
            kind=kind,
            index=next(_counter),
            calls=dict(calls),
            ops={op: dict(kinds) for op, kinds in ops.items()},
            reasons=translation.reasons,
            symbolic=bool(translation.sources),
            kernels=kernels,
            seconds={"translate": translated - start, "compile": done - translated},
        )
        _publish(record)
        return Executable(translation, executable, record)


def _strict() -> bool:
    import os

    return bool(os.environ.get("RELAXGRAD_STRICT"))


def _in_aten(gm: torch.fx.GraphModule, kind: GraphKind, reason: Reason, fallback: str) -> Callable[..., Any]:
    ops = Counter(str(n.target) for n in gm.graph.nodes if n.op == "call_function")
    if fallback == "error":
        raise UnsupportedOps([reason])
    record = GraphRecord(
        kind=kind,
        index=next(_counter),
        calls={Kind.FALLBACK: sum(ops.values())},
        ops={op: {Kind.FALLBACK: count} for op, count in ops.items()},
        reasons=(reason,),
        symbolic=True,
        kernels=0,
        seconds={},
    )
    _publish(record)
    return torch_api.make_boxed_func(gm.forward)


def _publish(record: GraphRecord) -> None:
    with _lock:
        for records in _listeners:
            records.append(record)


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1] if lines else ""
