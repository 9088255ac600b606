# SPDX-License-Identifier: Apache-2.0
"""Problems of a handful of operators."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..harness.problem import Problem


class SeedExample(nn.Module):
    """`relu(x @ w + b)`: the smallest training step with a matmul, a broadcast and a kink. x is (4, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4))
        self.b = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.w + self.b)


class Classifier(nn.Module):
    """A network followed by cross entropy: forward(x, labels) returns the 0-d loss."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.network(x), labels)


def seed_example() -> Problem:
    """Squared error outside the compiled function: the forward graph ends at the output, the backward starts there."""
    module, x, target = SeedExample(), torch.randn(4, 4), torch.randn(4, 4)
    return Problem(module, (x,), loss_fn=lambda y: (y - target).square().mean(), compile_loss=False)


def mlp() -> Problem:
    """Three linear layers with LayerNorm, GELU and dropout on a batch of 32 vectors of 64; 10 classes."""
    network = nn.Sequential(
        nn.Linear(64, 128),
        nn.LayerNorm(128),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(128, 128),
        nn.GELU(),
        nn.Dropout(0.1),
        nn.Linear(128, 10),
    )
    return Problem(Classifier(network), (torch.randn(32, 64), torch.randint(10, (32,))))
