# SPDX-License-Identifier: Apache-2.0
"""Convolutional image classifiers: one in plain torch, and Hugging Face models with small random configurations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..harness.problem import Problem
from .tiny import Classifier
from .vision import CLASSES, INITIAL, SINGLE_LABEL, SIZE, classifier_problem, images, labels


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
    return Problem(Classifier(network), (images(), labels()))


def vgg() -> Problem:
    """VGG: pairs of 3 x 3 convolutions between max poolings, two wide linear layers with dropout."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (16, 32, 48):
        for _ in range(2):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    head = [nn.Flatten(), nn.Linear(48 * 16, 64), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(64, CLASSES)]
    return Problem(Classifier(nn.Sequential(*layers, *head)), (images(), labels()))


class Fire(nn.Module):
    """SqueezeNet's block: a 1 x 1 squeeze, then 1 x 1 and 3 x 3 expansions. (b, c, h, w) -> (b, 2 e, h, w)."""

    def __init__(self, channels: int, squeezed: int, expanded: int):
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.narrow = nn.Conv2d(squeezed, expanded, 1)
        self.wide = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.squeeze(x))
        return torch.cat((torch.relu(self.narrow(x)), torch.relu(self.wide(x))), dim=1)


def squeezenet() -> Problem:
    """SqueezeNet: fire blocks, overlapping max pooling rounded up, a convolution as the head."""
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        Fire(16, 8, 16),
        Fire(32, 8, 16),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        Fire(32, 12, 24),
        nn.Dropout(0.5),
        nn.Conv2d(48, CLASSES, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return Problem(Classifier(network), (images(), labels()))


class DenseBlock(nn.Module):
    """DenseNet's block: each of `depth` layers reads all before it. (b, c, h, w) -> (b, c + depth * growth, h, w)."""

    def __init__(self, channels: int, growth: int, depth: int):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(channels + i * growth),
                nn.ReLU(),
                nn.Conv2d(channels + i * growth, growth, 3, padding=1, bias=False),
                nn.Dropout2d(0.1),
            )
            for i in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat((x, layer(x)), dim=1)
        return x


def densenet() -> Problem:
    """DenseNet: two dense blocks with a transition between them, whole channels dropped."""
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False),
        DenseBlock(16, 8, 3),
        nn.BatchNorm2d(40),
        nn.ReLU(),
        nn.Conv2d(40, 20, 1, bias=False),
        nn.AvgPool2d(2),
        DenseBlock(20, 8, 3),
        nn.BatchNorm2d(44),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(44, CLASSES),
    )
    return Problem(Classifier(network), (images(), labels()))


class ShuffleUnit(nn.Module):
    """ShuffleNet v2's unit: one half of the channels through three convolutions, then both halves interleaved."""

    def __init__(self, channels: int):
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(inplace=True),
            nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False),
            nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = x.chunk(2, dim=1)
        return torch.stack((kept, self.branch(changed)), dim=2).flatten(1, 2)


def shufflenet() -> Problem:
    """ShuffleNet v2: channel shuffles between units with depthwise convolutions."""
    network = nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
        *(ShuffleUnit(24) for _ in range(3)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, CLASSES),
    )
    return Problem(Classifier(network), (images(), labels()))


class InceptionBlock(nn.Module):
    """Inception's block: 1 x 1, factorised 5 x 5 (1 x 5 and 5 x 1), and pooled branches side by side."""

    def __init__(self, channels: int, width: int):
        super().__init__()

        def convolution(inner: int, size: tuple[int, int]) -> nn.Sequential:
            padding = (size[0] // 2, size[1] // 2)
            conv = nn.Conv2d(inner, width, size, padding=padding, bias=False)
            return nn.Sequential(conv, nn.BatchNorm2d(width, eps=0.001), nn.ReLU(inplace=True))

        self.point = convolution(channels, (1, 1))
        self.cross = nn.Sequential(
            convolution(channels, (1, 1)), convolution(width, (1, 5)), convolution(width, (5, 1))
        )
        self.pooled = nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), convolution(channels, (1, 1)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.point(x), self.cross(x), self.pooled(x)), dim=1)


def inception() -> Problem:
    """Inception v3: blocks of parallel branches, factorised convolutions."""
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        InceptionBlock(16, 12),
        nn.MaxPool2d(3, stride=2),
        InceptionBlock(36, 12),
        nn.AdaptiveAvgPool2d(1),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(36, CLASSES),
    )
    return Problem(Classifier(network), (images(), labels()))


def resnet() -> Problem:
    """ResNet with basic blocks in two stages: strided and projected shortcuts, batch norm, no dropout in the family."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2], layer_type="basic", **SINGLE_LABEL)
    return classifier_problem(ResNetForImageClassification(config))


def resnet_bottleneck() -> Problem:
    """ResNet with bottleneck blocks, as ResNet-50 has."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=16, hidden_sizes=[32, 64], depths=[2, 2], layer_type="bottleneck", **SINGLE_LABEL
    )
    return classifier_problem(ResNetForImageClassification(config))


def regnet() -> Problem:
    """RegNet Y: grouped convolutions with squeeze and excitation."""
    from transformers import RegNetConfig, RegNetForImageClassification

    config = RegNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], groups_width=8, layer_type="y", **SINGLE_LABEL
    )
    return classifier_problem(RegNetForImageClassification(config))


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
        **SINGLE_LABEL,
    )
    return classifier_problem(ConvNextForImageClassification(config))


def convnextv2() -> Problem:
    """ConvNeXt v2: global response normalisation in place of layer scale."""
    from transformers import ConvNextV2Config, ConvNextV2ForImageClassification

    config = ConvNextV2Config(
        num_stages=2, hidden_sizes=[16, 32], depths=[1, 2], drop_path_rate=0.4, image_size=SIZE, **SINGLE_LABEL
    )
    model = ConvNextV2ForImageClassification(config)
    for name, parameter in model.named_parameters():
        if "grn" in name:  # they start at zero, where the normalisation has no effect and no gradient beyond one layer
            nn.init.normal_(parameter, std=0.5)
    return classifier_problem(model)


#: Of models that halve the image five times: a batch norm over one element of four images multiplies what float32
#: rounds off by thousands, in eager as well.
LARGER = 96


def mobilenet_v1() -> Problem:
    """MobileNet v1: depthwise separable convolutions, ReLU6, padding as TensorFlow's."""
    from transformers import MobileNetV1Config, MobileNetV1ForImageClassification

    config = MobileNetV1Config(
        image_size=LARGER, depth_multiplier=0.25, classifier_dropout_prob=0.1, **INITIAL, **SINGLE_LABEL
    )
    return classifier_problem(MobileNetV1ForImageClassification(config), LARGER)


def mobilenet_v2() -> Problem:
    """MobileNet v2: inverted residuals with linear bottlenecks."""
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(
        image_size=LARGER,
        depth_multiplier=0.25,
        classifier_dropout_prob=0.1,
        output_stride=8,
        **INITIAL,
        **SINGLE_LABEL,
    )
    return classifier_problem(MobileNetV2ForImageClassification(config), LARGER)


def efficientnet() -> Problem:
    """EfficientNet: squeeze and excitation, SiLU, stochastic depth."""
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    config = EfficientNetConfig(
        image_size=SIZE,
        width_coefficient=0.5,
        depth_coefficient=0.5,
        hidden_dim=640,
        in_channels=[32, 16, 24],
        out_channels=[16, 24, 40],
        kernel_sizes=[3, 3, 5],
        strides=[1, 2, 2],
        num_block_repeats=[1, 2, 1],
        expand_ratios=[1, 6, 6],
        depthwise_padding=[],
        drop_connect_rate=0.4,
        dropout_rate=0.1,
        **INITIAL,
        **SINGLE_LABEL,
    )
    return classifier_problem(EfficientNetForImageClassification(config))
