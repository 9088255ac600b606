# SPDX-License-Identifier: Apache-2.0
"""A graph compiled in a fork of this process, while this one goes on tracing.

Note [Why a worker]
Memory: TVM's compiler and LLVM leave some 50 MB behind in a process, as much as a small model trains in; here that ends
with the child. Time: AOTAutograd traces the backward graph while the forward one compiles, and both compile at once on
two cores. And where TVM ends the process, it ends the child, and the graph runs in ATen.

Note [What a fork may do]
It has one thread, and every lock that another thread held stays locked. So what it does is translation and compilation
alone: no parallel loop of PyTorch, no CUDA (a process that uses it compiles its graphs itself), no kernel. A child that
waits for a lock uses no CPU time; it is killed after half a minute, and the process compiles its graphs itself.

The code comes back as an entry of the cache's format: in the cache, or else in a folder that is removed.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..device import Device
from ..errors import CompilerDied
from ..forked import STUCK, Fork, cores
from ..runtime.compiled import Compiled
from ..schemas import CapturedGraph
from ..targets import AUTO, resolve_target
from .cache import entries as cache
from .cache.folder import Folder
from .cache.key import Key

#: Nodes from which on a graph is worth a fork, which takes as long as translating and compiling 10 to 20 nodes.
LEAST_NODES = 64

_unfit = False  # after a fork that got stuck
_at_work: list[weakref.ref[Fork]] = []


def possible() -> bool:
    """Whether this process may compile in a fork."""
    return sys.platform.startswith("linux") and not _unfit and not torch.cuda.is_initialized()


def worth(captured: CapturedGraph) -> bool:
    """Whether a graph is large enough for a fork."""
    return sum(node.op == "call_function" for node in captured.module.graph.nodes) >= LEAST_NODES


def load_compiler(device: Device, target: str = AUTO) -> None:
    """Loads what a fork needs to compile: once, and not in every fork."""
    from ..importer import translate  # noqa: F401
    from . import pipeline  # noqa: F401

    resolve_target(target, device)
    device.load_implementations()
    device.objects()
    device.passes()


class Job:
    """`build(folder)` at work in a fork: it compiles the graph of `key` for the target of this name, and writes its
    entry into the cache or, where that cannot be, into `folder`. Raises OSError where the system gives no process.

    `build` returns JSON: `kept` (whether the entry is in the cache) and `seconds` (stage -> wall time), or `refused`
    (why the graph must be compiled here). While as many forks as there are cores are at work, a new one waits.
    """

    def __init__(self, key: Key, target: str, build: Callable[[Folder], dict[str, Any]]):
        while len(working := _working()) >= cores():
            working[0].result()
        load_compiler(key.device, target)
        self._key = key
        self._folder = Path(tempfile.mkdtemp(prefix="relaxgrad-"))
        self._remove = weakref.finalize(self, _remove, self._folder, os.getpid())
        folder = Folder(self._folder)
        self._fork = Fork(lambda: _alone(lambda: build(folder)))
        _at_work.append(weakref.ref(self._fork))

    def result(self) -> tuple[Compiled, dict[str, float]] | None:
        """(the graph with its code loaded, seconds of each stage); None where it must be compiled here.

        Raises CompilerDied where TVM ended the fork.
        """
        global _unfit
        found, ended = self._fork.result()
        try:
            if found is None:
                if ended.startswith("killed"):
                    raise CompilerDied(ended)
                if ended.startswith("stuck") and not _unfit:
                    _unfit = True
                    warnings.warn(
                        f"a fork that compiled a graph did nothing for {STUCK:.0f} s; relaxgrad compiles in this "
                        "process from now on",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                return None
            if "refused" in found:
                return None
            compiled = cache.find(self._key) if found["kept"] else cache.load(self._key, Folder(self._folder))
            return None if compiled is None else (compiled, found["seconds"])
        finally:
            self._remove()


def _remove(folder: Path, parent: int) -> None:
    if os.getpid() == parent:  # and not in a fork, which has the object too
        shutil.rmtree(folder, ignore_errors=True)


def _working() -> list[Fork]:
    """The forks that have not ended."""
    found = [fork for ref in _at_work if (fork := ref()) is not None and not fork.ended()]
    _at_work[:] = [weakref.ref(fork) for fork in found]
    return found


def _alone(build: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """See Note [What a fork may do]. An exception is not reported: the process that compiles the graph again will raise
    it."""
    gc.disable()  # a fork lives for seconds, and would copy every page that the collector writes to
    torch.set_num_threads(1)
    try:
        return build()
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}
