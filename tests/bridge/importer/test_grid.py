# SPDX-License-Identifier: Apache-2.0
"""Sampling at the points of a grid: interpolation, padding, alignment; gradients of image and grid."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.bridge.importer.harness import run_test


@pytest.mark.parametrize(
    ("mode", "align"), [("bilinear", True), ("bilinear", False), ("nearest", True), ("bicubic", False)]
)
def test_grid_sample_inside_and_outside_of_the_image(mode: str, align: bool) -> None:
    def sample(x: Tensor, grid: Tensor) -> list[Tensor]:
        values = [F.grid_sample(x, grid, mode, p, align_corners=align) for p in ("zeros", "border", "reflection")]
        # The grid of "nearest" has a gradient of zeros, which is no test.
        return [v * grid.sum() for v in values] if mode == "nearest" else values

    ops = ["aten.grid_sampler_2d.default", "aten.grid_sampler_2d_backward.default"]
    run_test(sample, torch.randn(2, 3, 4, 5), torch.randn(2, 3, 2, 2) * 1.5, ops=ops)


def test_grid_sample_over_three_dims() -> None:
    def sample(x: Tensor, grid: Tensor) -> tuple[Tensor, ...]:
        return F.grid_sample(x, grid, padding_mode="reflection", align_corners=False), F.grid_sample(
            x, grid, align_corners=True
        )

    run_test(sample, torch.randn(2, 2, 3, 4, 2), torch.randn(2, 2, 1, 3, 3) * 1.5)


def test_grid_sample_with_symbolic_sizes() -> None:
    def inputs(n: int, h: int, w: int) -> tuple[Tensor, Tensor]:
        return torch.randn(n, 2, h, w), torch.randn(n, w, h, 2)

    run_test(
        lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=False),
        *inputs(2, 4, 5), then=[inputs(3, 6, 3)], dynamic=True,
    )  # fmt: skip
