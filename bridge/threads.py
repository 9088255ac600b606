"""One process, two thread pools: torch's OpenMP pool for library kernels, TVM's for native ones.

TVM's workers spin for a while after a kernel, on a core that the next matrix product wants: with two threads each, a
GPT-2 step of 120 ms in eager took 410 ms. Without spinning the pools do not meet (119 ms), and without binding threads
to cores neither keeps the other off one. The variables are TVM's own and are read when its pool starts; what a user has
set stays.
"""

from __future__ import annotations

import os

import torch


def settle_pools() -> None:
    """Sets TVM's pool up to live beside torch's. To be called before the first kernel runs in the process."""
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("TVM_NUM_THREADS", str(torch.get_num_threads()))
