# SPDX-License-Identifier: Apache-2.0
"""The BLAS that torch ships with: which of its GEMM symbols generated code can call directly.

`libtorch_cpu` exports the Fortran and batch entry points of the BLAS that it was built with (MKL in the x86 wheels).
Loaded with global visibility, they are resolved by TVM's just-in-time linker, and a matrix product costs no trip
through Python.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import torch

#: Wanted symbols: matrix product of float32 and float64, with 32-bit sizes passed by address, and MKL's batch form.
_WANTED = ("sgemm_", "dgemm_", "cblas_sgemm_batch", "cblas_dgemm_batch")

#: Rows of a product of float32 that generated code may be better at: of fewer, MKL makes a matrix-vector product; of
#: more, it comes close or is ahead. Which of them are is measured: see devices/cpu/gemm_autotuning.py.
SMALL_M = range(3, 25)
#: And columns: three vectors of AVX-512.
FEWEST_COLUMNS = 48


@functools.cache
def symbols() -> frozenset[str]:
    """The names of `_WANTED` that are there, made visible to generated code. Empty where torch has no such library."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        handle = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    except OSError:
        return frozenset()
    return frozenset(name for name in _WANTED if hasattr(handle, name))
