"""Image classifiers on 32 x 32 images: a plain CNN, and Hugging Face models with small random configurations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..problem import Problem
from .tiny import Classifier

BATCH, CLASSES, SIZE = 4, 10, 32

# Where it is not given, the first forward writes it into the configuration, and Dynamo compiles the second one anew.
SINGLE_LABEL: dict[str, Any] = {"problem_type": "single_label_classification"}


def _images() -> Tensor:
    return torch.randn(BATCH, 3, SIZE, SIZE)


def _labels() -> Tensor:
    return torch.randint(CLASSES, (BATCH,))


def cnn_bn() -> Problem:
    """Two convolution, batch norm, ReLU, pooling blocks, dropout, a linear head. Batch norm updates its statistics."""
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(32 * 4 * 4, CLASSES),
    )
    return Problem(Classifier(network), (_images(), _labels()))


def vit() -> Problem:
    """ViT with patches of 8 x 8."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        image_size=SIZE,
        patch_size=8,
        num_labels=CLASSES,
        **SINGLE_LABEL,
    )
    return Problem(ViTForImageClassification(config), kwargs={"pixel_values": _images(), "labels": _labels()})


def resnet() -> Problem:
    """ResNet with basic blocks in two stages: strided and projected shortcuts, batch norm, no dropout in the family."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2], layer_type="basic", num_labels=CLASSES, **SINGLE_LABEL
    )
    return Problem(ResNetForImageClassification(config), kwargs={"pixel_values": _images(), "labels": _labels()})


def convnext() -> Problem:
    """ConvNeXt in two stages: depthwise convolution, channels-last norm, stochastic depth."""
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(
        num_stages=2,
        hidden_sizes=[16, 32],
        depths=[1, 2],
        drop_path_rate=0.4,  # drops whole examples of a batch of 4: at 0.1 most steps drop none
        # the default of 1e-6 hides the blocks behind their shortcuts, and with them any fault in their gradients
        layer_scale_init_value=0.1,
        image_size=SIZE,
        num_labels=CLASSES,
        **SINGLE_LABEL,
    )
    return Problem(ConvNextForImageClassification(config), kwargs={"pixel_values": _images(), "labels": _labels()})
