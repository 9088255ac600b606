"""Recurrent language models: embedding, two recurrent layers with dropout between them, a linear head."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..problem import Problem

VOCABULARY, WIDTH, BATCH, LENGTH = 64, 48, 4, 16


class RecurrentLanguageModel(nn.Module):
    """Next-token model. forward(tokens) takes (batch, length) int64 tokens and returns the 0-d loss."""

    def __init__(self, layer: type[nn.LSTM] | type[nn.GRU]):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.recurrent = layer(WIDTH, WIDTH, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.recurrent(self.embedding(tokens[:, :-1]))
        return F.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())


def _problem(layer: type[nn.LSTM] | type[nn.GRU]) -> Problem:
    return Problem(RecurrentLanguageModel(layer), (torch.randint(VOCABULARY, (BATCH, LENGTH + 1)),))


def lstm() -> Problem:
    """Two LSTM layers of 48 over 16 steps."""
    return _problem(nn.LSTM)


def gru() -> Problem:
    """Two GRU layers of 48 over 16 steps."""
    return _problem(nn.GRU)
