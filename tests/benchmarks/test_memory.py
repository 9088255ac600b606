# SPDX-License-Identifier: Apache-2.0
"""Highest resident memory belongs to the part that is meant, and the tuned allocator keeps what is freed."""

from __future__ import annotations

import os
import subprocess
import sys

from relaxgrad.benchmarks import memory

SIZE = 64 * 2**20

FAULTS = """
import resource
def step():
    for _ in range(4):
        block = bytearray(8 * 2**20)
        block[::4096] = bytes(len(block[::4096]))
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_a_peak_is_seen_after_it_is_over_and_only_once() -> None:
    base = memory.baseline()
    assert base is not None
    assert base > 2**20
    block = b"x" * SIZE
    del block
    peak = memory.over(base)
    assert peak is not None
    assert 0.9 * SIZE < peak < 2 * SIZE
    base = memory.start_peak()
    later = memory.over(base)
    assert later is not None
    assert later < SIZE / 4
    assert memory.over(None) is None


def faults(environment: dict[str, str]) -> int:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    run = subprocess.run(
        [sys.executable, "-c", FAULTS], env=plain | environment, capture_output=True, text=True, check=True
    )
    return int(run.stdout)


def test_tuned_malloc_takes_no_page_faults() -> None:
    assert faults({}) > 1000
    assert faults(memory.TUNED_MALLOC) < 100
