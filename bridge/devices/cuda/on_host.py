# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs as the target of graphs that were captured on the host, where there is no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...device import Device
from . import Cuda

if TYPE_CHECKING:
    import torch


class CudaOnHost(Cuda):
    """Takes the host's tensors, which stand for those that a GPU would have; what it makes is not run."""

    def __init__(self, host: Device):
        self._host = host
        self.name = host.name  # type: ignore[misc]  # a class's, but for this one

    @property
    def registered(self) -> str:
        return Cuda.name

    @property
    def folder(self) -> str:
        return Cuda.__module__

    @property
    def compiles(self) -> bool:
        return True

    def batch_norm_reserve(self, x: torch.Tensor) -> torch.Tensor | None:
        return self._host.batch_norm_reserve(x)
