"""One pool of threads: parallel loops of a compiled library on the OpenMP that torch runs on.

See compile/team.py. Where torch has another OpenMP than GNU's interface, or none, a library keeps TVM's pool, which is
set up to live beside torch's (bridge/threads.py).
"""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import os
from pathlib import Path

import torch

from ..threads import LAUNCH, OPENMP

_POINTER = "__TVMBackendParallelLaunch"
_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_NAMES = ("libgomp", "libiomp5", "libomp")


@functools.cache
def _openmp() -> tuple[int, ...] | None:
    """The addresses of `OPENMP`'s functions in the library that torch loaded; None where there is no one such."""
    root = Path(torch.__file__).parent
    try:
        mapped = {line.split(maxsplit=5)[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines()}
    except OSError:
        return None
    found = [path for path in sorted(mapped) if Path(path).name.startswith(_NAMES)]
    of_torch = [path for path in found if Path(path).is_relative_to(root.parent)] or found
    if len(of_torch) != 1:
        return None
    try:
        library = ctypes.CDLL(of_torch[0])
        return tuple(_address(getattr(library, name)) for name in _FUNCTIONS)
    except (OSError, AttributeError):
        return None


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def join_team(path: Path) -> bool:
    """Has the loaded library at `path` run its parallel loops on torch's OpenMP threads. Whether it does."""
    addresses = _openmp()
    if addresses is None:
        return False
    library = ctypes.CDLL(str(path), os.RTLD_NOLOAD | os.RTLD_NOW)
    try:
        for name, address in zip(OPENMP, addresses, strict=True):
            ctypes.c_void_p.in_dll(library, name).value = address
        launch = ctypes.c_void_p.in_dll(library, LAUNCH).value
        ctypes.c_void_p.in_dll(library, _POINTER).value = launch
    except ValueError:  # it has no parallel loop
        return False
    finally:
        _ctypes.dlclose(library._handle)  # TVM's handle keeps it
    return True
