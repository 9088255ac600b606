# SPDX-License-Identifier: Apache-2.0
"""What a virtual machine keeps between two calls: no result of the last one."""

from __future__ import annotations

import torch

from relaxgrad.benchmarks import memory
from relaxgrad.bridge.backend import relaxgrad

SIZE = 64 * 2**20  # bytes


def test_the_next_call_reuses_the_memory_of_results_that_the_caller_dropped() -> None:
    def widen(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 1).expand(-1, 64) + x[0]

    compiled = torch.compile(widen, backend=relaxgrad)
    x = torch.ones(SIZE // 4 // 64)
    first = memory.resident()
    compiled(x)
    before = memory.resident()
    assert first is not None
    assert before is not None
    assert before - first > 0.9 * SIZE  # else the test could not see anything
    for _ in range(3):
        compiled(x)
    after = memory.resident()
    assert after is not None
    assert after - before < 0.1 * SIZE
