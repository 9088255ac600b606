# SPDX-License-Identifier: Apache-2.0
"""Trains in bfloat16 under `torch.autocast`: products in bfloat16, parameters and the loss in float32.

    python examples/bf16.py --steps 200

A network learns the sum of sines; the same steps in float32 stand beside it.
"""

from __future__ import annotations

import argparse
import contextlib

import torch
from torch import nn


def train(steps: int, bf16: bool) -> list[float]:
    """The loss of each step."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 1)
    )
    step = torch.compile(model, backend="relaxgrad")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        x = torch.rand(64, 8) * 4 - 2
        y = x.sin().sum(dim=1, keepdim=True)
        with torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else contextlib.nullcontext():
            prediction = step(x)
        loss = nn.functional.mse_loss(prediction.float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    count = parser.parse_args().steps
    for name, low in (("float32", False), ("bfloat16", True)):
        found = train(count, low)
        print(f"{name}: loss {found[0]:.3f} at first, {found[-1]:.3f} after {count} steps")
