# SPDX-License-Identifier: Apache-2.0
"""Distances under several norms, with rows that coincide."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.bridge.importer.harness import run_test


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, math.inf])
def test_distances_and_their_gradients(p: float) -> None:
    a, b = torch.randn(2, 5, 3), torch.randn(2, 4, 3)
    b[0, 1] = a[0, 2]

    def distances(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        values = (torch.cdist(a, b, p), F.pdist(a[1], p), torch.dist(a, b[:1, :1], p))
        # At p = 0 they count, and have no gradient of their own.
        return values if p else tuple(v * a.sum() * b.sum() for v in values[:2])

    run_test(distances, a, b)


def test_distances_with_symbolic_sizes() -> None:
    def distances(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return torch.cdist(a, b, 2.0), F.pdist(a, 2.0)

    def inputs(n: int, m: int) -> tuple[Tensor, Tensor]:
        return torch.randn(n, 3), torch.randn(m, 3)

    run_test(distances, *inputs(4, 6), then=[inputs(7, 3), inputs(3, 9)], dynamic=True)
