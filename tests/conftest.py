# SPDX-License-Identifier: Apache-2.0
"""Settings of every test: one thread, no network, the same seed, and no compiled graph left over from another test."""

from __future__ import annotations

import os
from collections.abc import Iterator

# Read when torch and TVM are first imported, hence before any test module: a test worker has one core.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TVM_NUM_THREADS"] = "1"
os.environ["TVM_BIND_THREADS"] = "0"  # otherwise TVM pins each worker's thread to the same core
os.environ["RELAXGRAD_CACHE"] = "0"  # a test of the compiler must compile; the tests of the cache turn it on
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["COLUMNS"] = "200"  # width of what the commands print

import pytest
import torch


@pytest.fixture(autouse=True)
def _independent() -> Iterator[None]:
    """A test neither sees the graphs that another compiled nor depends on how many random numbers it drew."""
    torch.manual_seed(0)
    yield
    torch.compiler.reset()
