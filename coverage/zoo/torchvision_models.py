# SPDX-License-Identifier: Apache-2.0
"""Models of torchvision, which `pip install relaxgrad[vision]` brings, on 4 images of 64 x 64."""

from __future__ import annotations

from torch import Tensor, nn

from ..harness.problem import Problem
from .tiny import Classifier
from .vision import CLASSES, images, labels, pixel_labels


def _classifier(network: nn.Module) -> Problem:
    return Problem(Classifier(network), (images(64), labels()))


def torchvision_resnet18() -> Problem:
    """ResNet-18 as it is, 11.2 million parameters."""
    from torchvision.models import resnet18

    return _classifier(resnet18(num_classes=CLASSES))


def torchvision_resnext50() -> Problem:
    """ResNeXt-50 32x4d: grouped convolutions."""
    from torchvision.models import resnext50_32x4d

    return _classifier(resnext50_32x4d(num_classes=CLASSES))


def torchvision_mobilenet_v3() -> Problem:
    """MobileNet v3 large: hard swish, squeeze and excitation, dropout."""
    from torchvision.models import mobilenet_v3_large

    return _classifier(mobilenet_v3_large(num_classes=CLASSES))


def torchvision_mnasnet() -> Problem:
    """MNASNet 1.0 at half its width: dropout."""
    from torchvision.models import MNASNet

    return _classifier(MNASNet(0.5, num_classes=CLASSES))


def torchvision_shufflenet() -> Problem:
    """ShuffleNet v2 1.0x."""
    from torchvision.models import shufflenet_v2_x1_0

    return _classifier(shufflenet_v2_x1_0(num_classes=CLASSES))


def torchvision_lraspp() -> Problem:
    """Lite R-ASPP on MobileNet v3: segmentation at two scales."""
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    network = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=CLASSES)
    return Problem(Classifier(Output(network, "out")), (images(64), pixel_labels(64)))


class Output(nn.Module):
    """A network that returns a dict, and the one entry of it that is meant."""

    def __init__(self, network: nn.Module, key: str):
        super().__init__()
        self.network, self.key = network, key

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.network(x)[self.key]
        return output
