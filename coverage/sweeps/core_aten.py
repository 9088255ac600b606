# SPDX-License-Identifier: Apache-2.0
"""Every operator overload that torch tags as core ATen, called directly, forward and (where eager has one) backward.

The calls are in data/core_aten_calls.txt, in the format of the operator logs: add a line there to check one more case.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import oplogs
from .worker import Sample

CALLS = Path(__file__).parent / "data" / "core_aten_calls.txt"


class Sweep(oplogs.Sweep):
    """Settings: samples (at most so many calls an op; None: all)."""

    backward = True

    def __init__(self, settings: dict[str, Any]):
        super().__init__(settings | {"file": str(CALLS)})

    def samples(self, entry: str) -> dict[int, Callable[[], Sample]]:
        if entry.split(".")[1].startswith("sym_"):
            return {n: lambda make=make: _with_symbols(make()) for n, make in super().samples(entry).items()}  # type: ignore[misc]  # a default is how a lambda keeps its own
        return super().samples(entry)


def _with_symbols(sample: Sample) -> Sample:
    """An op on sizes, with a tensor made from its answer, so that there is a graph that computes something."""
    op = sample.call.function

    def call(tensor: torch.Tensor, *args: Any) -> Any:
        return op(tensor, *args), tensor * 2

    return Sample(type(sample.call)(call, sample.call.args, {}), sample.facts)
