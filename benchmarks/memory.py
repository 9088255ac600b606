# SPDX-License-Identifier: Apache-2.0
"""Resident memory of this process, its highest value since a moment, and what the allocator does. Linux.

Note [Highest resident memory]
The kernel keeps the highest resident size of a process (VmHWM), and sets it back when `5` is written to
/proc/self/clear_refs. So a peak is exact, and belongs to the part that is meant. Before a baseline is taken, freed
memory goes back to the system (`malloc_trim`): a step that found it there would seem to need none.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from pathlib import Path

#: glibc, for `--malloc tuned`: memory that a step frees stays in the process for the next one, and comes from the heap
#: up to 1 GiB a tensor.
TUNED_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**36),
    "MALLOC_TOP_PAD_": str(2**26),
}


def resident() -> int | None:
    """Bytes of this process in memory now; None where the system does not tell."""
    return _status("VmRSS")


def highest() -> int | None:
    """The most bytes of this process in memory since `start_peak`."""
    return _status("VmHWM")


def _status(key: str, path: str = "/proc/self/status") -> int | None:
    with contextlib.suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return None


def start_peak() -> int | None:
    """Has `highest` count from now on. Returns the bytes in memory now: see Note [Highest resident memory]."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return resident()


def baseline() -> int | None:
    """`start_peak` after everything that is free was given back to the system."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return start_peak()


def over(base: int | None) -> int | None:
    """`highest` over a baseline; None where either is not told."""
    top = highest()
    return None if base is None or top is None else max(top - base, 0)
