# SPDX-License-Identifier: Apache-2.0
"""What the C library does with freed memory, between the calls of a compiled graph.

Note [Freed memory]
glibc gives the free end of the heap back to the system when it is longer than a threshold, and the next allocation
takes it anew: a page fault every 4 KiB, 1,100 to 3,500 of them in a step of convolutions, whose scratch and results
ATen takes from the heap (a tenth to a fifth of the time of such a step). The threshold adapts: it becomes twice the
size of the largest block of its own mapping, 32 MiB at most, that the process has freed. A large model in eager frees
such blocks as it goes; a process whose tensors lie in memory that is planned ahead frees none.
"""

from __future__ import annotations

import functools

import torch

#: Bytes of the largest block that the threshold adapts to (DEFAULT_MMAP_THRESHOLD_MAX), less what glibc puts around it.
_LARGEST = (32 << 20) - (64 << 10)


@functools.cache
def configure_malloc() -> None:
    """Frees one large block, whose pages were never touched: see Note [Freed memory]. Once a process.

    Where the user has set the threshold (mallopt, MALLOC_TRIM_THRESHOLD_), or uses another C library or allocator, it
    stays as it is.
    """
    torch.empty(_LARGEST, dtype=torch.uint8)
