# SPDX-License-Identifier: Apache-2.0
"""One pool of threads: parallel loops of a compiled library on the OpenMP that torch runs on.

See openmp_object.py. Where torch has another OpenMP than GNU's interface, or none, a library keeps TVM's pool, which
is set up to live beside torch's (threads.py).
"""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import os
from pathlib import Path

#: Pointers in compiled libraries: to the function that starts a parallel loop on OpenMP's threads, and to OpenMP's
#: functions that it calls: one that runs a function in every thread of a team, one that tells the thread's number,
#: one that tells how many there are, and one that tells how many there will be.
LAUNCH = "relaxgrad_openmp_launch"
OPENMP = ("relaxgrad_openmp_parallel", "relaxgrad_openmp_number", "relaxgrad_openmp_count", "relaxgrad_openmp_most")

_POINTER = "__TVMBackendParallelLaunch"
_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads")


@functools.cache
def _openmp() -> tuple[int, ...] | None:
    """The addresses of OpenMP's functions that torch itself calls; None where it has another OpenMP, or none.

    torch loads what it depends on for the whole process to see, so a search through the process finds what torch's own
    calls were bound to: a library that was preloaded, or else the one that torch brings.
    """
    try:
        process = ctypes.CDLL(None)
        return tuple(_address(getattr(process, name)) for name in _FUNCTIONS)
    except (OSError, AttributeError, TypeError):  # TypeError: Windows
        return None


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def join_openmp(path: Path) -> bool:
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
