# SPDX-License-Identifier: Apache-2.0
"""Models of timm, which `pip install relaxgrad[vision]` brings, on 4 images of 64 x 64, in their smallest widths."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..harness.problem import Problem
from .tiny import Classifier
from .vision import CLASSES, images, labels


def _problem(name: str, **options: Any) -> Problem:
    import timm

    network = timm.create_model(name, pretrained=False, num_classes=CLASSES, **options)
    for key, parameter in network.named_parameters():
        # Gains of skipped branches, and some heads, start at zero: the first step's gradients of all before them are
        # zero, right or wrong.
        if not key.endswith("bias") and not bool(parameter.any()):
            nn.init.normal_(parameter, std=0.2)
    return Problem(Classifier(network), (images(64), labels()))


def timm_ghostnet() -> Problem:
    """GhostNet: half of the channels made from the others by cheap depthwise convolutions."""
    return _problem("ghostnet_050", drop_rate=0.1)


def timm_repvgg() -> Problem:
    """RepVGG: 3 x 3, 1 x 1 and identity branches added."""
    return _problem("repvgg_a0")


def timm_nfnet() -> Problem:
    """NFNet: no normalisation, weights standardised in each forward pass, skips scaled."""
    return _problem("nf_regnet_b0", drop_rate=0.1)


def timm_visformer() -> Problem:
    """Visformer: convolutions first, then attention, with batch norm."""
    return _problem("visformer_tiny", img_size=64, drop_rate=0.1)


def timm_mixer() -> Problem:
    """MLP-Mixer: linear layers across the patches, then across the channels."""
    return _problem("mixer_s32_224", img_size=64, drop_rate=0.1)
