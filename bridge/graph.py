"""One AOTAutograd graph made to run: out of the cache, or translated and compiled, here or by a child process."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch.fx

from . import logs, records, torch_api
from .capture import describe
from .errors import UnsupportedOps, UserError, last_line
from .kinds import Reason, ReasonKind
from .options import DEFAULTS, BackendOptions
from .records import is_symbolic, of_every_op, publish, record_in_aten, record_of
from .schemas import CapturedGraph, GraphKind

if TYPE_CHECKING:
    from .compile.cache.key import Key
    from .compile.pipeline import Code
    from .importer.state import Options
    from .plan import NodeReport, Translation
    from .runtime.compiled import Compiled
    from .runtime.executable import Executable

#: A compiled graph in AOTAutograd's boxed convention: a list of inputs, which it empties, to a list of outputs.
Runnable = Callable[[list[Any]], Any]

_loaded = time.time()


def compile_graph(
    gm: torch.fx.GraphModule,
    kind: GraphKind,
    options: BackendOptions = DEFAULTS,
) -> Callable[..., Any]:
    """One AOTAutograd graph as a boxed callable.

    A graph that TVM cannot take as a whole runs in ATen, each of its ops with the reason; under `fallback="error"` that
    raises UnsupportedOps. Where a child process compiles, all of that is known when the graph is first called.
    """
    captured = describe(gm, kind)
    return _guarded(captured, options, lambda: _on_tvm(captured, options))


def _guarded(captured: CapturedGraph, options: BackendOptions, compile: Callable[[], Runnable]) -> Runnable:
    """What `compile` returns, or the graph in ATen where it fails: see `compile_graph`."""
    with torch_api.real_tensors():
        try:
            return compile()
        except (UnsupportedOps, UserError):
            raise
        except Exception as error:  # a fault of ours or of TVM in one graph must not end the user's training
            from .importer.state import CannotTranslate

            if isinstance(error, CannotTranslate):
                return _in_aten(captured, error.reason, options)
            if options.on_compile_error == "raise":
                raise
            reason = Reason(ReasonKind.COMPILE, "graph", "", f"{type(error).__name__}: {last_line(error)}")
            return _in_aten(captured, reason, options)


def _on_tvm(captured: CapturedGraph, options: BackendOptions) -> Runnable:
    """A graph as an Executable: out of the cache, or else translated and compiled, here or by a child process."""
    from .compile import worker
    from .compile.cache import entries as cache

    captured.device.configure()
    start = time.perf_counter()
    key, compiled = _kept(captured, options)
    if key is not None and compiled is not None:
        nodes = cache.reports(compiled, key, captured.module)
        seconds = {"translate": 0.0, "compile": 0.0, "cache": time.perf_counter() - start}
        return _executable(captured, options, compiled, nodes, seconds, start)
    if may_compile_in_worker(options) and worker.worth(captured):
        key = key or cache.key_of(captured, _part_of_key(captured, options))
        if key is not None:
            return _apart(captured, options, key, start)
    return _here(captured, options, key, start)


def may_compile_in_worker(options: BackendOptions) -> bool:
    """Whether a child process compiles large graphs; not where options want to see every fault."""
    from .compile import worker

    return options == replace(DEFAULTS, cache=options.cache) and worker.possible()


def _here(captured: CapturedGraph, options: BackendOptions, key: Key | None, start: float) -> Executable:
    """A graph compiled in this process, and kept under `key`."""
    from .compile.cache import entries as cache
    from .compile.cache import link as cache_link

    built = _build(captured, options)
    compiled = built.compiled
    found = None
    if not built.cacheable or built.added_guards or options.cache == "off" or not cache.in_use(_loaded):
        key = None
    if key is not None and cache.keep(key, built.executable, compiled, _loaded):
        found = cache.find(key)
    if found is None:
        compiled.library = cache_link.load(built.executable, captured.device) or built.executable.jit()
        found = compiled if key is None else cache.remember(key, compiled)
    built.seconds["compile"] = time.perf_counter() - start - built.seconds["translate"]
    return _executable(captured, options, found, compiled.nodes, built.seconds, start)


def _apart(captured: CapturedGraph, options: BackendOptions, key: Key, start: float) -> Runnable:
    """A graph that a child process compiles. It is waited for when it is first called, or at once where sizes are
    symbolic: what translation asks of them becomes a guard of Dynamo's, and the child's questions are not heard here.
    """
    from .compile import worker
    from .compile.cache import entries as cache

    keeps = options.cache == "on" and cache.in_use(_loaded)

    def build(folder: Any) -> dict[str, Any]:
        built = _build(captured, options)
        if built.added_guards:
            return {"refused": "translation asked for a fact about its sizes"}
        began = time.perf_counter()
        kept = keeps and built.cacheable and cache.keep(key, built.executable, built.compiled, _loaded)
        if not kept and not cache.write(key, built.executable, built.compiled, folder):
            return {"refused": "the compiled graph is larger than RELAXGRAD_CACHE_SIZE"}
        built.seconds["compile"] += time.perf_counter() - began
        return {"kept": kept, "seconds": built.seconds}

    try:
        job = worker.Job(key, options.target, build)
    except OSError:  # no process, no memory, or no room for files: what is done here needs none of them
        return _here(captured, options, key, start)
    started = time.perf_counter() - start

    def finish() -> Runnable:
        began = time.perf_counter()
        found = job.result()
        if found is None:
            return _here(captured, options, key, began - started)
        compiled, seconds = found
        nodes = cache.reports(compiled, key, captured.module)
        return _executable(captured, options, compiled, nodes, seconds, began - started)

    later = _CompileFuture(lambda: _guarded(captured, options, finish))
    if logs.wanted() or is_symbolic(captured.module):
        return later.ready()
    return later


class _CompileFuture:
    """A graph that a child process compiles: the first call waits for it. Safe to call from several threads."""

    unfinished: ClassVar[weakref.WeakSet[_CompileFuture]] = weakref.WeakSet()

    def __init__(self, finish: Callable[[], Runnable]):
        self._boxed_call = True  # an attribute of the instance: Dynamo's wrappers copy those only
        self._finish: Callable[[], Runnable] | None = finish
        self._lock = threading.Lock()
        self._run: Runnable | None = None
        self.unfinished.add(self)

    def ready(self) -> Runnable:
        """The compiled graph, waited for."""
        with self._lock:
            if self._run is None:
                assert self._finish is not None
                self._run, self._finish = self._finish(), None
                self.unfinished.discard(self)
            return self._run

    def __call__(self, args: list[Any]) -> Any:
        return (self._run or self.ready())(args)


def _finish_all() -> None:
    for later in list(_CompileFuture.unfinished):
        later.ready()


records.before_end.append(_finish_all)


def _executable(
    captured: CapturedGraph,
    options: BackendOptions,
    compiled: Compiled,
    nodes: Sequence[NodeReport],
    seconds: dict[str, float],
    start: float,
) -> Executable:
    """The compiled graph with this model's tensors, published; the process waited for it since `start`."""
    from .importer.constants import constants
    from .runtime.executable import Executable

    record = record_of(captured, compiled, nodes, seconds)
    executable = Executable(compiled, constants(captured.module), record)
    record.waited = time.perf_counter() - start
    logs.show(captured, record, options.target)
    publish(record)
    return executable


def _kept(captured: CapturedGraph, options: BackendOptions) -> tuple[Key | None, Compiled | None]:
    """The key of a graph, None where it is not cached, and what the cache has under it, None where it has nothing."""
    from .compile.cache import entries as cache

    if options.cache == "off" or not cache.in_use(_loaded):
        return None, None
    key = cache.key_of(captured, _part_of_key(captured, options))
    return key, None if key is None else cache.find(key)


def is_kept(captured: CapturedGraph, options: BackendOptions) -> bool:
    """Whether the cache has the compiled graph."""
    return _kept(captured, options)[1] is not None


def _part_of_key(captured: CapturedGraph, options: BackendOptions) -> tuple[Any, ...]:
    """The options on which the code of a graph depends, and what was measured of its products."""
    tuned = captured.device.tuned(captured.module, keeps=options.cache == "on")
    return options.fallback, options.target, options.on_compile_error, sorted(tuned)


@dataclass
class _Built:
    """A graph compiled, its code not loaded."""

    executable: Any  # TVM's
    compiled: Compiled  # without its library
    seconds: dict[str, float]
    added_guards: bool  # whether translation asked for a fact about symbolic sizes
    cacheable: bool  # whether every kernel compiled at the first go


def _build(captured: CapturedGraph, options: BackendOptions) -> _Built:
    """Translates and compiles a graph. Nodes whose kernel TVM fails to compile run in ATen.

    What has `added_guards` or is not `cacheable` is not kept: see Note [What is kept] in compile/cache/entries.py.
    """
    from .compile.pipeline import compile_module
    from .devices.targets import resolve_target
    from .importer.state import Options
    from .importer.translate import translate
    from .runtime.compiled import Compiled

    device = captured.device
    target = resolve_target(options.target, device)
    guards = torch_api.guards_of(captured.module)
    start = time.perf_counter()
    tuned = device.tuned(captured.module, keeps=options.cache == "on")
    how = Options(fallback=options.fallback, on_compile_error=options.on_compile_error, tuned=tuned)
    translation = translate(captured, how)
    translated = time.perf_counter()
    added_guards, cacheable = torch_api.guards_of(captured.module) != guards, True
    try:
        code = compile_module(translation.module, device, target)
    except Exception:
        if options.on_compile_error == "raise":
            raise
        cacheable = False
        translation, code = _without_failing_nodes(captured, translation, target, how)
    compiled = Compiled(device, None, translation.plan.in_place(code.written), translation.nodes, code.kernels)
    seconds = {"translate": translated - start, "compile": time.perf_counter() - translated}
    return _Built(code.executable, compiled, seconds, added_guards, cacheable)


def _without_failing_nodes(
    captured: CapturedGraph, failed: Translation, target: Any, how: Options
) -> tuple[Translation, Code]:
    """(translation, its code) of a graph that TVM failed to compile: first without the nodes whose kernel
    fails alone, then without fusion. Raises what TVM raises in the end."""
    from .compile.bisect import failing_nodes, unfused
    from .compile.pipeline import compile_module
    from .importer.translate import translate

    if nodes := failing_nodes(failed, lambda module: compile_module(module, captured.device, target)):
        failed = translate(captured, replace(how, not_native=nodes))
        with contextlib.suppress(Exception):  # fusion may fail as well
            return failed, compile_module(failed.module, captured.device, target)
    return failed, compile_module(unfused(failed.module), captured.device, target)


def _in_aten(captured: CapturedGraph, reason: Reason, options: BackendOptions) -> Runnable:
    reasons = of_every_op(captured.module, reason)
    if options.fallback == "error":
        raise UnsupportedOps(reasons or [reason])
    record = record_in_aten(captured, reasons, reason)
    publish(record)
    logs.show(captured, record, options.target)
    return torch_api.make_boxed_func(captured.module.forward)
