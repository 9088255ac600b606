# SPDX-License-Identifier: Apache-2.0
"""The C library's heap between the calls of a graph."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource, sys, torch
from relaxgrad.bridge.devices.cpu.malloc import configure_malloc
torch.set_num_threads(1)
if sys.argv[1] == "settled":
    configure_malloc()

def step():  # the largest blocks are those that a model's convolutions take and free
    blocks = [torch.empty(100_000, dtype=torch.uint8).fill_(1) for _ in range(40)]
    del blocks

for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_freed_memory_is_not_faulted_in_again() -> None:
    """40 blocks below the threshold of a mapping: 1,000 pages, of which the system takes some back after each step."""
    assert faults("plain") > 1_000
    assert faults("settled") < 100
