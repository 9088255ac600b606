# SPDX-License-Identifier: Apache-2.0
"""One AOTAutograd graph made to run: as compiled code, or in ATen with the reason."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
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
    from .compile.driver import Outcome
    from .runtime.executable import Executable

#: A compiled graph in AOTAutograd's boxed convention: a list of inputs, which it empties, to a list of outputs.
Runnable = Callable[[list[Any]], Any]


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


def compiles_in_children(options: BackendOptions) -> bool:
    """Whether a child process compiles large graphs under these options."""
    from .compile import driver

    return driver.may_use_child(options)


def _on_tvm(captured: CapturedGraph, options: BackendOptions) -> Runnable:
    """A graph out of the cache, or else compiled: by a child process where that is worth it. The child is waited for
    when the graph is first called, or at once where sizes are symbolic: what translation asks of them becomes a guard
    of Dynamo's, and the child's questions are not heard here.
    """
    from .compile import driver

    start = time.perf_counter()
    captured.device.configure()
    request = driver.Request(captured, options)
    found = driver.lookup(request)
    finish = driver.in_child(request) if found is None else None
    if finish is None:
        return _executable(captured, options, found or driver.in_process(request), start)
    wait, started = finish, time.perf_counter() - start

    def finished() -> Runnable:
        began = time.perf_counter() - started  # what this process waited for, and not what it did meanwhile
        return _executable(captured, options, wait(), began)

    later = _CompileFuture(lambda: _guarded(captured, options, finished))
    return later.ready() if logs.wanted() or is_symbolic(captured.module) else later


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


def _executable(captured: CapturedGraph, options: BackendOptions, found: Outcome, start: float) -> Executable:
    """The compiled graph with this model's tensors, published; the process waited for it since `start`."""
    from .importer.constants import constants
    from .runtime.executable import Executable

    record = record_of(captured, found.compiled, found.nodes, found.seconds)
    executable = Executable(found.compiled, constants(captured.module), record)
    record.waited = time.perf_counter() - start
    logs.show(captured, record, options.target)
    publish(record)
    return executable


def _in_aten(captured: CapturedGraph, reason: Reason, options: BackendOptions) -> Runnable:
    reasons = of_every_op(captured.module, reason)
    if options.fallback == "error":
        raise UnsupportedOps(reasons or [reason])
    record = record_in_aten(captured, reasons, reason)
    publish(record)
    logs.show(captured, record, options.target)
    return torch_api.make_boxed_func(captured.module.forward)
