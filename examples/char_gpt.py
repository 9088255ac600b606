# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on a text that ships with Python, character by character, and writes a few lines of its own.

    python examples/char_gpt.py --steps 300

The text is the Zen of Python and the docstrings of the standard library's modules. With `--eager` the same steps run
without relaxgrad: the losses are the same up to rounding.
"""

from __future__ import annotations

import argparse
import asyncio
import codecs
import collections
import contextlib
import decimal
import functools
import io
import json
import logging
import random
import statistics

import torch
from torch import Tensor, nn

MODULES = (argparse, asyncio, collections, contextlib, decimal, json, logging, random, statistics)


@functools.cache
def text() -> str:
    """The Zen of Python and the docstrings of some modules."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this  # prints the Zen, at the first import only
    docs = [m.__doc__ or "" for m in MODULES]
    docs += [d for m in MODULES for n in dir(m) if isinstance(d := getattr(getattr(m, n), "__doc__", None), str)]
    return codecs.decode(this.s, "rot13") + "\n".join(docs)


class Block(nn.Module):
    """Attention over what came before, then a two-layer network, both added to their input."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) -> the same."""
        parts = self.qkv(self.before(x)).chunk(3, dim=-1)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        attended = nn.functional.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.network(self.between(x))


class GPT(nn.Module):
    """`forward(tokens, targets)`: (batch, length) int64 twice -> the mean cross entropy, 0-d."""

    def __init__(self, vocabulary: int, length: int = 64, width: int = 96, layers: int = 3, heads: int = 4):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout=0.1) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def logits(self, tokens: Tensor) -> Tensor:
        """(batch, length, vocabulary)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions(positions))))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.logits(tokens).flatten(0, 1), targets.flatten())


def train(steps: int, eager: bool = False, batch: int = 16, length: int = 64) -> tuple[GPT, str, list[float]]:
    """(the model, its alphabet, the loss of each step)."""
    torch.manual_seed(0)
    characters = text()
    alphabet = "".join(sorted(set(characters)))
    numbers = {c: i for i, c in enumerate(alphabet)}
    data = torch.tensor([numbers[c] for c in characters])
    model = GPT(len(alphabet), length)
    step = model if eager else torch.compile(model, backend="relaxgrad")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for number in range(steps):
        starts = torch.randint(len(data) - length - 1, (batch,)).tolist()
        rows = torch.stack([data[s : s + length + 1] for s in starts])
        loss = step(rows[:, :-1], rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if number % 50 == 0 or number == steps - 1:
            print(f"step {number}: {losses[-1]:.3f}")
    return model, alphabet, losses


@torch.no_grad()
def write(model: GPT, alphabet: str, count: int, length: int = 64) -> str:
    """`count` characters, each drawn from the model's distribution."""
    model.eval()
    tokens = torch.zeros(1, 1, dtype=torch.int64)
    for _ in range(count):
        probabilities = model.logits(tokens[:, -length:])[0, -1].softmax(-1)
        tokens = torch.cat([tokens, torch.multinomial(probabilities, 1)[None]], dim=1)
    return "".join(alphabet[i] for i in tokens[0, 1:].tolist())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--eager", action="store_true", help="without relaxgrad")
    given = parser.parse_args()
    trained, letters, _ = train(given.steps, given.eager)
    print(write(trained, letters, 300))
