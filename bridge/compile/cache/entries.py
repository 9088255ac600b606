# SPDX-License-Identifier: Apache-2.0
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

from ...capture.source import source_of
from ...importer.wrappers import unwrapped
from ...kinds import ReasonKind
from ...plan import NodeReport
from ...runtime.compiled import Compiled
from ...runtime.virtual_machine import load_library
from ...schemas import CapturedGraph
from . import folder as cache_folder
from . import key as cache_key
from . import link as cache_link
from .folder import Folder, warn_once
from .key import Key
from .text import NotPlain, decode, encode

_memory: weakref.WeakValueDictionary[str, Compiled] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_log = logging.getLogger(__name__)  # at level DEBUG it says of each graph that is not kept why


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that held it is not in the child


os.register_at_fork(after_in_child=_after_fork)


def in_use(since: float) -> bool:
    """Whether graphs are kept and looked for: the cache is on, and the bridge's sources are those of this process.

    `since`: when this process loaded the bridge; where a source was written later, it is not known which of them run
    here. Raises UserError for a wrong RELAXGRAD_CACHE_SIZE.
    """
    if not cache_folder.enabled():
        return False
    cache_folder.limit()
    return not cache_key.changed_since(since)


def key_of(captured: CapturedGraph, options: Sequence[Any]) -> Key | None:
    """The key of a graph, or None for one that has no text: see Note [What is kept].

    `options`: what the result depends on beside the graph.
    """
    try:
        return cache_key.key_of(captured, options)
    except NotPlain as reason:
        _log.debug("a %s graph is not cached: it holds %s", captured.kind, reason)
        return None
    except Exception as error:  # a graph of a kind that no test has costs its compilation and no more
        warn_once(f"{type(error).__name__}: {error}")
        return None


def find(key: Key) -> Compiled | None:
    """The compiled graph of a key, from this process's memory or from disk; None where there is none."""
    with _lock:
        return _found(key)


def keep(key: Key, executable: Any, compiled: Compiled, since: float) -> bool:
    """Stores a graph that was compiled for the next process, and says whether it is there. Never raises.

    `executable`: TVM's, with the code of `compiled`.
    """
    if not _is_sound(compiled):
        return False
    try:
        folder = Folder(cache_folder.location())
        if folder.prepare() and not cache_key.changed_since(since) and write(key, executable, compiled, folder):
            folder.trim()
            return True
    except NotPlain as reason:
        _log.debug("a graph is not kept on disk: its plan holds %s", reason)
    except Exception as error:  # a full disk, a linker that fails
        warn_once(f"{type(error).__name__}: {error}")
    return False


def write(key: Key, executable: Any, compiled: Compiled, folder: Folder) -> bool:
    """Writes the entry of a graph into `folder`, and returns whether it is there: one larger than the limit is not.

    Raises NotPlain for a plan that has no text, OSError, and what the linker raises.
    """
    compiled.symbols = key.symbols
    text = json.dumps(_text_of(compiled), separators=(",", ":"))
    return folder.write(key.name, text, lambda path: cache_link.export(executable, path, key.device))


def remember(key: Key, compiled: Compiled) -> Compiled:
    """Keeps a graph in this process's memory, while it is in use; returns the one that is there, if there is one."""
    compiled.symbols = key.symbols
    with _lock:
        return _memory.setdefault(key.name, compiled)


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


def _found(key: Key) -> Compiled | None:
    """See Note [One library, one load]. With the lock held."""
    compiled = _memory.get(key.name)
    if compiled is None:
        compiled = load(key, Folder(cache_folder.location()))
        if compiled is not None:
            _memory[key.name] = compiled
    return compiled


def load(key: Key, folder: Folder) -> Compiled | None:
    """The entry of a key in a folder; None where there is none that is whole and loads."""
    if not folder.usable():
        return None
    for _ in range(2):  # once more where another process replaced the file under our hands
        try:
            with folder.reading(key.name) as text:
                if text is None:
                    return None
                plan, nodes, kernels, symbols = decode(json.loads(text))
                library = load_library(folder.entry(key.name), key.device)
                return Compiled(key.device, library, plan, nodes, kernels, symbols)
        except OSError:
            continue
        except Exception:  # whole, and yet of no use here: the next compilation replaces it
            with contextlib.suppress(OSError):
                folder.entry(key.name).unlink()
            return None
    return None


def _text_of(compiled: Compiled) -> Any:
    nodes = [
        report if report.reason is None else replace(report, reason=replace(report.reason, source=None))
        for report in compiled.nodes
    ]
    return encode((compiled.plan, nodes, compiled.kernels, compiled.symbols))
