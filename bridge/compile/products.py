"""Which products of few rows generated code is better at than the BLAS: measured once a machine.

MKL packs a matrix before it multiplies by it. On AMD's Zen 4 generated code, which packs nothing (compute/few_rows.py),
takes half of MKL's time for 8 rows; on Intel's Ice Lake it takes more. So the first graph on a machine that has such a
product times both, and the answer is kept beside the compiled graphs. A process that finds the answer does not load
TVM's compiler for it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.fx

from .. import blas
from ..blas import FEW_ROWS
from ..files import write_whole
from . import cache_folder
from .cache_key import surroundings

#: Rows that are measured, each for the counts from it up to the next.
ROWS = (FEW_ROWS.start, 8, 16)
#: The matrix that they are multiplied by: the weight of a recurrent layer of 256.
INNER, COLUMNS = 256, 1024
ROUNDS = 30
#: Share of the BLAS's time that generated code may take and no more.
BETTER = 0.95

_lock = threading.Lock()
_table: frozenset[int] | None = None
_log = logging.getLogger(__name__)
aten = torch.ops.aten


def rows_to_generate(module: torch.fx.GraphModule) -> frozenset[int]:
    """The numbers of rows for which products of a graph are generated. Nothing is measured for a graph that has none.

    Not to be called first in a fork: it would run kernels.
    """
    global _table
    if not _has_few_rows(module):
        return frozenset()
    with _lock:
        if _table is None:
            _table = _kept_or_measured()
        return _table


def _has_few_rows(module: torch.fx.GraphModule) -> bool:
    for node in module.graph.nodes:
        if node.target in (aten.mm.default, aten.addmm.default):
            value = node.meta.get("val")
            rows = value.shape[0] if isinstance(value, torch.Tensor) else None
            if isinstance(rows, int) and rows in FEW_ROWS:
                return True
    return False


def forget() -> None:
    """Removes what was measured; processes that are running keep what they know. Raises OSError."""
    _path().unlink(missing_ok=True)


def _path() -> Path:
    return cache_folder.location().parent / "products.json"


def _kept_or_measured() -> frozenset[int]:
    path = _path()
    machine = hashlib.sha256(repr(surroundings()).encode()).hexdigest()[:40]
    folder = cache_folder.Folder(cache_folder.location())
    keeps = cache_folder.enabled() and folder.prepare()
    known = _read(path) if keeps else {}
    if machine not in known:
        known = {machine: sorted(_measured())}
        if keeps:
            _write(path, known)
    return frozenset(known[machine])


def _read(path: Path) -> dict[str, list[int]]:
    """What the file holds; nothing where it is not there, or not ours."""
    try:
        found = json.loads(path.read_bytes())
        return {str(machine): [int(rows) for rows in table] for machine, table in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _write(path: Path, known: dict[str, list[int]]) -> None:
    try:
        write_whole(path, json.dumps(known).encode())
    except OSError as error:  # the next process measures again
        _log.debug("%s is not written: %s", path, error)


def _measured() -> frozenset[int]:
    """The numbers of rows for which generated code takes less time; none where it cannot be told."""
    if "sgemm_" not in blas.symbols():
        return frozenset()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found: set[int] = set()
    try:
        for rows, end in zip(ROWS, (*ROWS[1:], FEW_ROWS.stop), strict=True):
            if _is_faster(rows):
                found |= set(range(rows, end))
    except Exception as error:  # a fault of TVM or of ours costs speed and no more
        _log.debug("products of few rows are not measured: %s", error)
    finally:
        torch.set_num_threads(threads)
    return frozenset(found)


def _is_faster(rows: int) -> bool:
    from ..runtime.machine import Machine
    from . import cache_link
    from .pipeline import compile_module
    from .target import resolve_target

    left, right = torch.ones(rows, INNER), torch.ones(INNER, COLUMNS)
    code = compile_module(_product(rows), resolve_target("llvm"))
    machine = Machine(cache_link.load(code.executable) or code.executable.jit())
    out = torch.empty(rows, COLUMNS)

    def generated() -> None:
        machine.main(left, right)

    def called() -> None:
        torch.mm(left, right, out=out)

    with torch.no_grad():
        seconds = [_fastest_in_turns(generated, called) for _ in range(ROUNDS)]
    ours, theirs = (min(times) for times in zip(*seconds, strict=True))
    _log.debug("product of %d rows: generated %.1f us, BLAS %.1f us", rows, ours * 1e6, theirs * 1e6)
    return ours < BETTER * theirs


def _fastest_in_turns(*functions: Callable[[], None]) -> list[float]:
    """Seconds of a call of each, the call before it not counted: the other one has taken the caches."""
    found = []
    for function in functions:
        function()
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return found


def _product(rows: int) -> Any:
    from tvm import relax

    from ..importer.compute import few_rows
    from ..importer.compute.gemm import Matrix
    from ..importer.kernel import kernel_call
    from ..importer.types import Symbols

    builder = relax.BlockBuilder()
    sizes = [(rows, INNER), (INNER, COLUMNS)]
    given = [relax.Var(name, relax.TensorType(size, "float32")) for name, size in zip("ab", sizes, strict=True)]
    left, right = (Matrix(*size, False, size[1]) for size in sizes)

    def product(a: Any, b: Any) -> Any:
        return few_rows.product(a, b, left, right)

    with builder.function("main", given):
        with builder.dataflow():
            call = kernel_call(builder, Symbols(), product, given, (), "product")
            result = builder.emit_output(builder.normalize(call))
        builder.emit_func_output(relax.Tuple([result]))
    return builder.get()
