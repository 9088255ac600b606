# SPDX-License-Identifier: Apache-2.0
"""Sizes and batches that the image models of the zoo share: 4 images of 3 x 32 x 32, 10 classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..harness.problem import Problem

BATCH, CLASSES, SIZE = 4, 10, 32

# Where it is not given, the first forward writes it into the configuration, and Dynamo compiles the second one anew.
SINGLE_LABEL: dict[str, Any] = {"problem_type": "single_label_classification", "num_labels": CLASSES}

# Hugging Face draws weights with a deviation of 0.02, which fits wide layers: in convolutions of 16 channels the signal
# dies out after a few layers, and every gradient with it, right or wrong.
INITIAL: dict[str, Any] = {"initializer_range": 0.15}


def images(size: int = SIZE) -> Tensor:
    """(batch, 3, size, size) float32."""
    return torch.randn(BATCH, 3, size, size)


def labels() -> Tensor:
    """(batch,) int64, one class for an image."""
    return torch.randint(CLASSES, (BATCH,))


def pixel_labels(size: int = SIZE) -> Tensor:
    """(batch, size, size) int64, one class for a pixel."""
    return torch.randint(CLASSES, (BATCH, size, size))


def classifier_problem(model: nn.Module, size: int = SIZE) -> Problem:
    """A Hugging Face image classifier, which computes its cross entropy itself."""
    return Problem(model, kwargs={"pixel_values": images(size), "labels": labels()})
