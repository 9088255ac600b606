# SPDX-License-Identifier: Apache-2.0
"""Embedding bags in every float dtype: bfloat16 sums are summed apart (bridge/capture/decompose.py)."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.bridge.importer.harness import run_test


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_embedding_bag_sums_and_their_gradients(dtype: torch.dtype) -> None:
    indices = torch.tensor([1, 4, 4, 0, 2, 6])

    def bags(weight: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
        return (
            F.embedding_bag(indices, weight, torch.tensor([0, 2, 2]), mode="sum"),
            F.embedding_bag(indices, weight, torch.tensor([0, 3, 6]), mode="sum", include_last_offset=True),
            F.embedding_bag(indices, weight, torch.tensor([0, 1]), mode="sum", per_sample_weights=scale),
            F.embedding_bag(indices, weight, torch.tensor([0, 2]), mode="sum", padding_idx=4),
            F.embedding_bag(indices, weight, torch.tensor([0, 2]), mode="mean"),
        )

    inputs = [(torch.randn(n, 5).to(dtype), torch.randn(6).to(dtype)) for n in (7, 9)]
    run_test(bags, *inputs[0], then=inputs[1:], dynamic=True, kinds={"native", "library"})
