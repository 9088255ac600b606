# SPDX-License-Identifier: Apache-2.0
"""A captured graph to a compiled one, by three strategies with one result: found in the cache, compiled by this
process, or compiled by a child of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .. import torch_api
from ..options import DEFAULTS, BackendOptions
from ..schemas import CapturedGraph
from . import worker
from .cache import entries as cache
from .cache import link as cache_link
from .cache.key import Key

if TYPE_CHECKING:
    from ..importer.state import Options
    from ..plan import NodeReport, Translation
    from ..runtime.compiled import Compiled
    from .pipeline import Code

_loaded = time.time()


@dataclass
class Outcome:
    """A graph compiled, its code loaded."""

    compiled: Compiled
    nodes: Sequence[NodeReport]  # with the source lines and the names of sizes of the graph at hand
    seconds: dict[str, float]  # stage -> wall time, wherever it was spent


class Request:
    """A graph to be compiled. `key`: its key in the cache, None where it is neither looked for nor kept."""

    def __init__(self, captured: CapturedGraph, options: BackendOptions):
        self.captured, self.options = captured, options
        self.tuned = captured.device.tuned(captured.module, keeps=options.cache == "on")
        self.in_use = options.cache != "off" and cache.in_use(_loaded)
        self.key = self.name() if self.in_use else None

    def name(self) -> Key | None:
        """The key of the graph and of the options on which its code depends; None where the graph has no text."""
        options = self.options
        return cache.key_of(
            self.captured, (options.fallback, options.target, options.on_compile_error, sorted(self.tuned))
        )


def lookup(request: Request) -> Outcome | None:
    """The graph out of the cache, None where it has none."""
    start = time.perf_counter()
    compiled = None if request.key is None else cache.find(request.key)
    if request.key is None or compiled is None:
        return None
    nodes = cache.reports(compiled, request.key, request.captured.module)
    return Outcome(compiled, nodes, {"translate": 0.0, "compile": 0.0, "cache": time.perf_counter() - start})


def in_process(request: Request) -> Outcome:
    """The graph compiled here, and kept. Raises what translation and TVM raise."""
    start = time.perf_counter()
    built = _build(request)
    compiled, key = built.compiled, request.key if built.is_kept else None
    found = None
    if key is not None and cache.keep(key, built.executable, compiled, _loaded):
        found = cache.find(key)
    if found is None:
        compiled.library = cache_link.load(built.executable, request.captured.device) or built.executable.jit()
        found = compiled if key is None else cache.remember(key, compiled)
    built.seconds["compile"] = time.perf_counter() - start - built.seconds["translate"]
    return Outcome(found, compiled.nodes, built.seconds)


def may_use_child(options: BackendOptions) -> bool:
    """Whether a child process compiles large graphs; not where options want to see every fault."""
    return options == replace(DEFAULTS, cache=options.cache) and worker.possible()


def in_child(request: Request) -> Callable[[], Outcome] | None:
    """Has a child process compile the graph; what is returned waits for it, and compiles here where the child could
    not. None where no child is worth it, or none can be made."""
    if not may_use_child(request.options) or not worker.worth(request.captured):
        return None
    key = request.key or request.name()
    if key is None:
        return None
    keeps = request.in_use and request.options.cache == "on"

    def build(folder: Any) -> dict[str, Any]:
        built = _build(request)
        if built.added_guards:
            return {"refused": "translation asked for a fact about its sizes"}
        began = time.perf_counter()
        kept = keeps and built.is_kept and cache.keep(key, built.executable, built.compiled, _loaded)
        if not kept and not cache.write(key, built.executable, built.compiled, folder):
            return {"refused": "the compiled graph is larger than RELAXGRAD_CACHE_SIZE"}
        built.seconds["compile"] += time.perf_counter() - began
        return {"kept": kept, "seconds": built.seconds}

    try:
        job = worker.Job(key, request.options.target, build)
    except OSError:  # no process, no memory, or no room for files: what is done here needs none of them
        return None

    def finish() -> Outcome:
        found = job.result()
        if found is None:
            return in_process(request)
        compiled, seconds = found
        return Outcome(compiled, cache.reports(compiled, key, request.captured.module), seconds)

    return finish


@dataclass
class _Built:
    """A graph compiled, its code not loaded."""

    executable: Any  # TVM's
    compiled: Compiled  # without its library
    seconds: dict[str, float]
    added_guards: bool  # whether translation asked for a fact about symbolic sizes
    is_whole: bool  # whether every kernel compiled at the first go

    @property
    def is_kept(self) -> bool:
        """See Note [What is kept] in cache/entries.py."""
        return self.is_whole and not self.added_guards


def _build(request: Request) -> _Built:
    """Translates and compiles a graph. Nodes whose kernel TVM fails to compile run in ATen."""
    from ..importer.state import Options
    from ..importer.translate import translate
    from ..runtime.compiled import Compiled
    from ..targets import resolve_target
    from .pipeline import compile_module

    captured, options = request.captured, request.options
    device = captured.device
    target = resolve_target(options.target, device)
    guards = torch_api.guards_of(captured.module)
    start = time.perf_counter()
    how = Options(fallback=options.fallback, on_compile_error=options.on_compile_error, tuned=request.tuned)
    translation = translate(captured, how)
    translated = time.perf_counter()
    added_guards, is_whole = torch_api.guards_of(captured.module) != guards, True
    try:
        code = compile_module(translation.module, device, target)
    except Exception:
        if options.on_compile_error == "raise":
            raise
        is_whole = False
        translation, code = _without_failing_nodes(captured, translation, target, how)
    compiled = Compiled(device, None, translation.plan.in_place(code.written), translation.nodes, code.kernels)
    seconds = {"translate": translated - start, "compile": time.perf_counter() - translated}
    return _Built(code.executable, compiled, seconds, added_guards, is_whole)


def _without_failing_nodes(
    captured: CapturedGraph, failed: Translation, target: Any, how: Options
) -> tuple[Translation, Code]:
    """(translation, its code) of a graph that TVM failed to compile: first without the nodes whose kernel
    fails alone, then without fusion. Raises what TVM raises in the end."""
    from ..importer.translate import translate
    from .bisect import failing_nodes, unfused
    from .pipeline import compile_module

    if nodes := failing_nodes(failed, lambda module: compile_module(module, captured.device, target)):
        failed = translate(captured, replace(how, not_native=nodes))
        with contextlib.suppress(Exception):  # fusion may fail as well
            return failed, compile_module(failed.module, captured.device, target)
    return failed, compile_module(unfused(failed.module), captured.device, target)
