# SPDX-License-Identifier: Apache-2.0
"""Segmentation, depth and detection: an output for every pixel, or a set of boxes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..harness.problem import Problem
from .tiny import Classifier
from .vision import BATCH, CLASSES, INITIAL, SIZE, images, pixel_labels
from .vision_transformers import VIT_LIKE


def _block(channels: int, width: int) -> nn.Sequential:
    """Two 3 x 3 convolutions, each with batch norm and ReLU; keeps height and width."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.Conv2d(width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """U-Net of three levels (Ronneberger et al. 2015). forward(x): (b, 3, h, w) -> (b, classes, h, w) logits."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.first = _block(3, width)
        self.second = _block(width, 2 * width)
        self.bottom = _block(2 * width, 4 * width)
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout2d(0.1)
        self.up_second = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.left_second = _block(4 * width, 2 * width)
        self.up_first = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.left_first = _block(2 * width, width)
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(self.pool(first))
        bottom = self.drop(self.bottom(self.pool(second)))
        second = self.left_second(torch.cat((second, self.up_second(bottom)), dim=1))
        first = self.left_first(torch.cat((first, self.up_first(second)), dim=1))
        head: Tensor = self.head(first)
        return head


def unet() -> Problem:
    """U-Net for segmentation: skip connections, transposed convolutions, a class for each pixel."""
    return Problem(Classifier(UNet()), (images(), pixel_labels()))


class DilatedNet(nn.Module):
    """DeepLab v3's head: dilated convolutions side by side with an image-wide mean, resized to the input."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.branches = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=rate, dilation=rate, bias=False) for rate in (1, 2, 4)
        )
        self.whole = nn.Conv2d(width, width, 1)
        self.project = nn.Sequential(nn.Conv2d(4 * width, width, 1), nn.BatchNorm2d(width), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.stem(x)
        mean = self.whole(hidden.mean((2, 3), keepdim=True)).expand(-1, -1, *hidden.shape[-2:])
        logits = self.head(self.project(torch.cat([*(branch(hidden) for branch in self.branches), mean], dim=1)))
        return F.interpolate(logits, size=x.shape[-2:], mode="bilinear", align_corners=False)


def deeplab() -> Problem:
    """DeepLab v3: dilated convolutions at three rates, bilinear resizing."""
    return Problem(Classifier(DilatedNet()), (images(), pixel_labels()))


def segformer() -> Problem:
    """SegFormer: a hierarchical transformer with overlapping patches, all levels resized and joined."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        depths=[1, 1, 1, 1],
        hidden_sizes=[16, 16, 32, 32],
        num_attention_heads=[1, 1, 2, 2],
        mlp_ratios=[2, 2, 2, 2],
        decoder_hidden_size=32,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        drop_path_rate=0.1,
        num_labels=CLASSES,
        **INITIAL,
    )
    inputs = {"pixel_values": images(64), "labels": pixel_labels(64)}
    return Problem(SegformerForSemanticSegmentation(config), kwargs=inputs)


def dpt() -> Problem:
    """DPT: a ViT whose layers are reassembled at four resolutions and fused, for segmentation."""
    from transformers import DPTConfig, DPTForSemanticSegmentation

    sizes = VIT_LIKE | {"num_hidden_layers": 4}
    config = DPTConfig(
        **sizes,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=16,
        is_hybrid=False,
        num_labels=CLASSES,
        **INITIAL,
    )
    inputs = {"pixel_values": images(), "labels": pixel_labels()}
    return Problem(DPTForSemanticSegmentation(config), kwargs=inputs)


class SetLoss(nn.Module):
    """A detector followed by the losses of its boxes, against targets that were matched to its queries beforehand.

    forward(pixels, classes, boxes): (b, 3, h, w), (b, queries) int64 with the last class for "nothing",
    (b, queries, 4) as centre and size in [0, 1] -> the 0-d loss: cross entropy, L1 and generalised IoU
    (Carion et al. 2020). The matching itself (an assignment problem, solved on the CPU by scipy) is left out: it has no
    gradient.
    """

    def __init__(self, detector: nn.Module):
        super().__init__()
        self.detector = detector

    def forward(self, pixels: Tensor, classes: Tensor, boxes: Tensor) -> Tensor:
        output = self.detector(pixels)
        logits, found = output["logits"], output["pred_boxes"]
        real = (classes < logits.shape[-1] - 1).float()
        count = real.sum().clamp(min=1)
        class_loss = F.cross_entropy(logits.flatten(0, 1), classes.flatten())
        distance = ((found - boxes).abs().sum(-1) * real).sum() / count
        overlap = ((1 - generalized_iou(corners(found), corners(boxes))) * real).sum() / count
        return class_loss + 5 * distance + 2 * overlap


def corners(boxes: Tensor) -> Tensor:
    """(..., 4) centre and size -> (..., 4) left, top, right, bottom."""
    centre, size = boxes.split(2, dim=-1)
    return torch.cat((centre - size / 2, centre + size / 2), dim=-1)


def generalized_iou(a: Tensor, b: Tensor) -> Tensor:
    """Generalised intersection over union of boxes (..., 4) in pairs -> (...), in [-1, 1] (Rezatofighi et al. 2019)."""

    def area(low: Tensor, high: Tensor) -> Tensor:
        return (high - low).clamp(min=0).prod(-1)

    shared = area(torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:]))
    union = area(a[..., :2], a[..., 2:]) + area(b[..., :2], b[..., 2:]) - shared
    hull = area(torch.minimum(a[..., :2], b[..., :2]), torch.maximum(a[..., 2:], b[..., 2:]))
    return shared / union - (hull - union) / hull


class Detr(nn.Module):
    """DETR: a convolutional backbone, a transformer with learned queries, heads for classes and boxes."""

    def __init__(self, width: int = 32, queries: int = 8):
        super().__init__()
        self.backbone = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU()),
        )
        self.position = nn.Parameter(torch.randn(64, width) * 0.02)
        self.queries = nn.Parameter(torch.randn(queries, width))
        self.transformer = nn.Transformer(width, 4, 1, 1, dim_feedforward=64, dropout=0.1, batch_first=True)
        self.classes = nn.Linear(width, CLASSES + 1)
        self.boxes = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4), nn.Sigmoid())

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        hidden = self.backbone(pixels).flatten(2).transpose(1, 2) + self.position
        found = self.transformer(hidden, self.queries.expand(pixels.shape[0], -1, -1))
        return {"logits": self.classes(found), "pred_boxes": self.boxes(found)}


def _detection(detector: nn.Module, queries: int) -> Problem:
    classes = torch.randint(CLASSES + 1, (BATCH, queries))
    boxes = torch.cat((torch.rand(BATCH, queries, 2), torch.rand(BATCH, queries, 2) * 0.5 + 0.1), dim=-1)
    return Problem(SetLoss(detector), (images(), classes, boxes))


def detr() -> Problem:
    """DETR on feature maps of 8 x 8, 8 queries."""
    return _detection(Detr(), queries=8)


def yolos() -> Problem:
    """YOLOS: a ViT with detection tokens beside its patches."""
    from transformers import YolosConfig, YolosForObjectDetection

    sizes = VIT_LIKE | {"image_size": [SIZE, SIZE]}
    config = YolosConfig(**sizes, num_detection_tokens=8, num_labels=CLASSES, use_mid_position_embeddings=False)
    return _detection(YolosForObjectDetection(config), queries=8)


class YoloHead(nn.Module):
    """A dense detector: for each cell of an 8 x 8 map a box, an objectness and class scores (Redmon & Farhadi 2018).

    forward(pixels, target, has_box, classes): (b, 3, 32, 32), (b, 4, 8, 8), (b, 8, 8) of 0 and 1, (b, 8, 8) int64
    -> the 0-d loss.
    """

    def __init__(self, width: int = 16):
        super().__init__()
        self.backbone = nn.Sequential(
            *(nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.LeakyReLU(0.1)),
            *(nn.Conv2d(width, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.LeakyReLU(0.1)),
        )
        self.coarse = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.LeakyReLU(0.1),
            nn.Upsample(scale_factor=2, mode="nearest"),
        )
        self.head = nn.Conv2d(3 * width, 5 + CLASSES, 1)

    def forward(self, pixels: Tensor, target: Tensor, has_box: Tensor, classes: Tensor) -> Tensor:
        fine = self.backbone(pixels)
        output = self.head(torch.cat((fine, self.coarse(fine)), dim=1))
        box, objectness, scores = output[:, :4].sigmoid(), output[:, 4], output[:, 5:]
        box_loss = (F.smooth_l1_loss(box, target, reduction="none").sum(1) * has_box).sum() / has_box.sum()
        object_loss = F.binary_cross_entropy_with_logits(objectness, has_box)
        class_loss = (F.cross_entropy(scores, classes, reduction="none") * has_box).sum() / has_box.sum()
        return box_loss + object_loss + class_loss


def yolo() -> Problem:
    """A dense detector on two scales with leaky ReLU and nearest upsampling."""
    cells = (BATCH, SIZE // 4, SIZE // 4)
    has_box = (torch.rand(cells) < 0.3).float()
    target, classes = torch.rand(BATCH, 4, *cells[1:]), torch.randint(CLASSES, cells)
    return Problem(YoloHead(), (images(), target, has_box, classes))
