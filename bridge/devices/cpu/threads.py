# SPDX-License-Identifier: Apache-2.0
"""One pool of threads in a process, torch's OpenMP pool: for library kernels and for the parallel loops of native ones.

Compiled libraries bring what they need for it (openmp_object.py), and get it when they are loaded (openmp.py).
A graph that was never made a library, or another OpenMP than torch's usual one, leaves TVM's own pool beside torch's.
Its workers spin for a while after a kernel, on a core that the next matrix product wants: with two threads each, a
GPT-2 step of 120 ms in eager took 410 ms. Without spinning the pools do not meet (119 ms), and without binding threads
to cores neither keeps the other off one. The variables are TVM's own and are read when its pool starts; what a user has
set stays.
"""

from __future__ import annotations

import os

import torch


def configure_threads() -> None:
    """Sets TVM's pool, where one is started, up to live beside torch's; before the first kernel runs in the process."""
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("TVM_NUM_THREADS", str(torch.get_num_threads()))
