# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on scikit-learn's 1,797 digits of 8 x 8 pixels, and tests it on those held out.

    pip install scikit-learn && python examples/digits_cnn.py --epochs 5

The last batch of an epoch is smaller than the others: it is compiled once more, with a symbolic batch.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn


def network() -> nn.Module:
    """(batch, 1, 8, 8) -> (batch, 10)."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip


def data() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(images, labels) to train on, and (images, labels) held out."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    return images[:1500], labels[:1500], images[1500:], labels[1500:]


def train(epochs: int, batch: int = 64) -> float:
    """The share of the held-out digits that the trained network reads right."""
    torch.manual_seed(0)
    images, labels, held_out, held_out_labels = data()
    model = network()
    step = torch.compile(model, backend="relaxgrad")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(epochs):
        model.train()
        for rows in torch.randperm(len(images)).split(batch):
            loss = nn.functional.cross_entropy(step(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (step(held_out).argmax(1) == held_out_labels).float().mean().item()
        print(f"epoch {epoch}: loss {loss.item():.3f}, {right:.1%} of those held out")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    train(parser.parse_args().epochs)
