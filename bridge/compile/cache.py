"""Compiled graphs, kept in memory while they are in use and on disk for the next process.

A graph that is found is neither translated nor compiled: what is stored is its code and its calling plan, and TVM's
compiler is not even loaded. What belongs to one model (constants, source lines, records) comes from the graph at hand.

Note [What is kept]
Graphs that TVM compiled whole, at the first go. A graph with a node that fell back because a converter or TVM failed is
not: the failure may be passing (memory, a full disk), and the entry would keep the model slow for good. Nor is one
whose translation asked for a fact about its sizes, of which Dynamo makes a guard: a process that loads the entry would
not have the guard. Nor one that holds what has no text: submodules (higher-order ops), Python objects, functions of
the user's own, ops whose converter is not the bridge's.

Note [One library, one load]
Two loads of one file give two modules over the same memory, and the one that is freed first takes the other's context
with it. So a library is loaded once and shared, under a lock.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch.fx

from .. import blas
from ..capture.source import source_of
from ..importer.translation import NodeReport
from ..importer.wrappers import unwrapped
from ..kinds import ReasonKind
from ..runtime.compiled import Compiled
from ..runtime.machine import load_library
from ..schemas import CapturedGraph
from . import cache_folder, cache_key, cache_link
from .cache_folder import Folder, warn_once
from .cache_key import Key
from .cache_text import NotPlain, decode, encode

_memory: weakref.WeakValueDictionary[str, Compiled] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_log = logging.getLogger(__name__)  # at level DEBUG it says of each graph that is not kept why


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that held it is not in the child


os.register_at_fork(after_in_child=_after_fork)


def key_of(captured: CapturedGraph, options: Sequence[Any], since: float) -> Key | None:
    """The key of a graph, or None for one that is not cached: the cache is off, or see Note [What is kept].

    `options`: what the result depends on beside the graph. `since`: when this process loaded the bridge; where its
    sources were written later, nobody knows which of them run here, and nothing is cached. Raises UserError for a wrong
    RELAXGRAD_CACHE_SIZE.
    """
    if not cache_folder.enabled():
        return None
    cache_folder.limit()
    try:
        return None if cache_key.changed_since(since) else cache_key.key_of(captured, options)
    except NotPlain as reason:
        _log.debug("a %s graph is not cached: it holds %s", captured.kind, reason)
        return None
    except Exception as error:  # a graph of a kind that no test has costs its compilation and no more
        warn_once(f"{type(error).__name__}: {error}")
        return None


def find(key: Key) -> Compiled | None:
    """The compiled graph of a key, from this process's memory or from disk; None where there is none."""
    with _lock:
        return _found(key.name)


def keep(key: Key, executable: Any, compiled: Compiled, since: float) -> Compiled:
    """Stores a graph that was compiled, and returns it with its code loaded from there, as the next process will.

    Where it cannot be stored, it stays in memory alone. Never raises. `executable`: TVM's, with the code of `compiled`.
    """
    if not _is_sound(compiled):
        return compiled
    compiled.symbols = key.symbols
    try:
        folder = Folder(cache_folder.location())
        if folder.prepare() and not cache_key.changed_since(since):
            text = json.dumps(_text_of(compiled), separators=(",", ":"))
            if folder.write(key.name, text, lambda path: cache_link.export(executable, path)):
                folder.trim()
    except NotPlain as reason:
        _log.debug("a graph is not kept on disk: its plan holds %s", reason)
    except Exception as error:  # a full disk, a linker that fails
        warn_once(f"{type(error).__name__}: {error}")
    with _lock:
        return _found(key.name) or _memory.setdefault(key.name, compiled)


def reports(compiled: Compiled, key: Key, module: torch.fx.GraphModule) -> list[NodeReport]:
    """How each node runs, with the source lines and the names of sizes that the graph at hand has."""
    if not any(report.reason for report in compiled.nodes):
        return compiled.nodes
    names = dict(zip(compiled.symbols, key.symbols, strict=True))
    pattern = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in names) or r"(?!)")

    def renamed(text: str) -> str:
        return pattern.sub(lambda match: names[match[0]], text)

    nodes = {node.name: node for node in unwrapped(module).graph.nodes}
    found = []
    for report in compiled.nodes:
        reason = report.reason
        if reason is not None:
            shapes = tuple(tuple(map(renamed, shape)) for shape in reason.shapes)
            source = source_of(nodes.get(reason.node))
            reason = replace(reason, detail=renamed(reason.detail), shapes=shapes, source=source)
        found.append(replace(report, reason=reason))
    return found


def _is_sound(compiled: Compiled) -> bool:
    """See Note [What is kept]."""
    return not any(n.reason is not None and n.reason.kind is ReasonKind.COMPILE for n in compiled.nodes)


def _found(name: str) -> Compiled | None:
    """See Note [One library, one load]. With the lock held."""
    compiled = _memory.get(name)
    if compiled is None:
        compiled = _load(name)
        if compiled is not None:
            _memory[name] = compiled
    return compiled


def _load(name: str) -> Compiled | None:
    folder = Folder(cache_folder.location())
    if not folder.usable():
        return None
    for _ in range(2):  # once more where another process replaced the file under our hands
        try:
            with folder.reading(name) as text:
                if text is None:
                    return None
                plan, nodes, kernels, symbols = decode(json.loads(text))
                blas.symbols()  # makes the BLAS visible to the library
                return Compiled(load_library(folder.entry(name)), plan, nodes, kernels, symbols)
        except OSError:
            continue
        except Exception:  # whole, and yet of no use here: the next compilation replaces it
            with contextlib.suppress(OSError):
                folder.entry(name).unlink()
            return None
    return None


def _text_of(compiled: Compiled) -> Any:
    nodes = [
        report if report.reason is None else replace(report, reason=replace(report.reason, source=None))
        for report in compiled.nodes
    ]
    return encode((compiled.plan, nodes, compiled.kernels, compiled.symbols))
