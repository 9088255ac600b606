# SPDX-License-Identifier: Apache-2.0
"""Which products of few rows generated code is better at than the BLAS: measured once a machine.

MKL packs a matrix before it multiplies by it. On AMD's Zen 4 generated code, which packs nothing
(compute/small_m_gemm.py), takes half of MKL's time for 8 rows; on Intel's Ice Lake it takes more. So the first graph on
a machine that has such a product times both, and the answer is kept beside the compiled graphs. A process that finds
the answer does not load TVM's compiler for it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ...compile.cache import folder as cache_folder
from ...compile.cache.key import environment
from ...device import host
from ...files import write_whole
from ...forked import in_fork
from . import blas
from .blas import FEWEST_COLUMNS, SMALL_M

if TYPE_CHECKING:
    from ...runtime.virtual_machine import VirtualMachine

#: Rows that are measured, each for the counts from it up to the next.
ROWS = (SMALL_M.start, 8, 16)
#: The matrix that they are multiplied by: the weight of a recurrent layer of 256.
INNER, COLUMNS = 256, 1024
ROUNDS = 30
#: Share of the BLAS's time that generated code may take and no more.
BETTER = 0.95
#: Seconds for all of it.
LIMIT = 60.0
#: Answers that the file keeps: of several machines with one home, or environments on one machine.
KEPT = 16

_lock = threading.Lock()
_table: frozenset[int] | None = None
_log = logging.getLogger(__name__)
aten = torch.ops.aten


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that held it is not in the child


os.register_at_fork(after_in_child=_after_fork)


def rows_to_generate(module: torch.fx.GraphModule, keeps: bool = True) -> frozenset[int]:
    """The numbers of rows for which products of a graph are generated. Nothing is measured for a graph that has none.

    `keeps`: whether the answer may be read from the folder of compiled graphs, and kept there. Never raises: where it
    cannot be measured, all products go to the BLAS, in this process.
    """
    global _table
    if not _has_small_m(module):
        return frozenset()
    if _table is None:
        with _lock:
            if _table is None:
                try:
                    _table = _kept_or_measured(keeps)
                except Exception as error:  # it costs speed and no more
                    _log.debug("products of few rows are not measured: %s", error)
                    _table = frozenset()
    return _table


def forget() -> None:
    """Removes what was measured; processes that are running keep what they know. Raises OSError."""
    _path().unlink(missing_ok=True)


def _path() -> Path:
    return cache_folder.location() / "products.json"


def _has_small_m(module: torch.fx.GraphModule) -> bool:
    for node in module.graph.nodes:
        if node.target in (aten.mm.default, aten.addmm.default):
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor) and value.dtype is torch.float32:
                rows, columns = value.shape
                if isinstance(rows, int) and rows in SMALL_M and isinstance(columns, int) and columns >= FEWEST_COLUMNS:
                    return True
    return False


def _kept_or_measured(keeps: bool) -> frozenset[int]:
    machine = hashlib.sha256(repr(environment(host())).encode()).hexdigest()[:40]
    folder = cache_folder.Folder(cache_folder.location())
    keeps = keeps and cache_folder.enabled()
    known = _read() if keeps and folder.usable() else {}
    if machine in known:
        return frozenset(known[machine])
    found = _measured()
    if found is None:
        return frozenset()
    if keeps and folder.prepare():
        known = _read()  # once more: another process may have been first, and all are to have one answer
        found = frozenset(known.setdefault(machine, sorted(found)))
        _write(dict(list(known.items())[-KEPT:]))
    return found


def _read() -> dict[str, list[int]]:
    """What the file holds; nothing where it is not there, or not ours."""
    try:
        found = json.loads(_path().read_bytes())
        return {str(machine): [int(rows) for rows in table] for machine, table in found.items()}
    except (OSError, ValueError, OverflowError, AttributeError, TypeError):
        return {}


def _write(known: dict[str, list[int]]) -> None:
    try:
        write_whole(_path(), json.dumps(known).encode())
    except OSError as error:  # the next process measures again
        _log.debug("%s is not written: %s", _path(), error)


def _measured() -> frozenset[int] | None:
    """The numbers of rows for which generated code takes less time on one thread; None where that cannot be told now.

    In a fork: the number of threads is the process's, and what measuring does to MKL and to memory ends there.
    """
    from ...compile import worker

    if "sgemm_" not in blas.symbols():
        return frozenset()
    if not worker.possible():
        return None
    worker.load_compiler(host())

    def work() -> dict[str, list[int]]:
        torch.set_num_threads(1)
        return {"rows": _faster()}

    found, why = in_fork(work, LIMIT)
    if found is None:
        _log.debug("products of few rows are not measured: %s", why)
    return None if found is None else frozenset(found["rows"])


def _faster() -> list[int]:
    ends = (*ROWS[1:], SMALL_M.stop)
    return [row for rows, end in zip(ROWS, ends, strict=True) if _is_faster(rows) for row in range(rows, end)]


def _is_faster(rows: int) -> bool:
    """Whether a generated kernel takes less time than one that calls the BLAS, both called in the same way."""
    from .compute import gemm, small_m_gemm

    sizes = (rows, INNER), (INNER, COLUMNS)
    left, right = (gemm.Matrix(*size, False, size[1]) for size in sizes)
    like: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}  # whatever the defaults are
    operands = [torch.ones(*size, **like) for size in sizes]
    generated = _machine(sizes, lambda a, b: small_m_gemm.product(a, b, left, right))
    called = _machine(sizes, lambda a, b: gemm.product(a, b, left, right, "float32"))
    turns = [_seconds(generated.main, called.main, operands) for _ in range(ROUNDS)]
    ours, theirs = (min(times) for times in zip(*turns, strict=True))
    _log.debug("product of %d rows: generated %.1f us, BLAS %.1f us", rows, ours * 1e6, theirs * 1e6)
    return ours < BETTER * theirs


def _seconds(ours: Callable[..., Any], theirs: Callable[..., Any], operands: Sequence[torch.Tensor]) -> list[float]:
    """Seconds of a call of each, the call before it not counted: the other one has taken the caches."""
    found = []
    for function in (ours, theirs):
        function(*operands)
        start = time.perf_counter()
        function(*operands)
        found.append(time.perf_counter() - start)
    return found


def _machine(sizes: Sequence[tuple[int, int]], product: Callable[[Any, Any], Any]) -> VirtualMachine:
    """A virtual machine whose `main` is one product of float32 matrices of these sizes."""
    from tvm import relax

    from ...compile.cache import link as cache_link
    from ...compile.pipeline import compile_module
    from ...importer.kernel import make_kernel
    from ...importer.types import Symbols
    from ...runtime.virtual_machine import VirtualMachine
    from ...targets import resolve_target

    builder = relax.BlockBuilder()
    given = [relax.Var(name, relax.TensorType(size, "float32")) for name, size in zip("ab", sizes, strict=True)]
    with builder.function("main", given):
        with builder.dataflow():
            call = make_kernel(builder, Symbols(), product, given, (), "product").call(given)
            result = builder.emit_output(builder.normalize(call))
        builder.emit_func_output(relax.Tuple([result]))
    device = host()
    code = compile_module(builder.get(), device, resolve_target(device.kind))
    library = cache_link.load(code.executable, device)
    if library is None:
        raise RuntimeError("without a linker, loops would run on other threads than the BLAS's")
    return VirtualMachine(library, device)
