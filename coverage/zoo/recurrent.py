# SPDX-License-Identifier: Apache-2.0
"""Recurrent networks: language models of two layers, a tagger, a translator with attention, a cell called in a loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..harness.problem import Problem

VOCABULARY, WIDTH, BATCH, LENGTH = 64, 48, 4, 16


class RecurrentLanguageModel(nn.Module):
    """Next-token model. forward(tokens) takes (batch, length) int64 tokens and returns the 0-d loss."""

    def __init__(self, layer: type[nn.LSTM] | type[nn.GRU] | type[nn.RNN]):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.recurrent = layer(WIDTH, WIDTH, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.recurrent(self.embedding(tokens[:, :-1]))
        return F.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())


def _language_model(layer: type[nn.LSTM] | type[nn.GRU] | type[nn.RNN]) -> Problem:
    return Problem(RecurrentLanguageModel(layer), (torch.randint(VOCABULARY, (BATCH, LENGTH + 1)),))


def lstm() -> Problem:
    """Two LSTM layers of 48 over 16 steps."""
    return _language_model(nn.LSTM)


def gru() -> Problem:
    """Two GRU layers of 48 over 16 steps."""
    return _language_model(nn.GRU)


def rnn() -> Problem:
    """Two tanh layers of 48 over 16 steps."""
    return _language_model(nn.RNN)


class Tagger(nn.Module):
    """A bidirectional LSTM that labels every token. forward(tokens, tags): (batch, length) int64 both -> the loss."""

    def __init__(self, tags: int):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.recurrent = nn.LSTM(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(WIDTH, tags)

    def forward(self, tokens: Tensor, tags: Tensor) -> Tensor:
        hidden, _ = self.recurrent(self.embedding(tokens))
        return F.cross_entropy(self.head(self.drop(hidden)).flatten(0, 1), tags.flatten())


def bilstm() -> Problem:
    """A bidirectional LSTM tagger with 9 tags."""
    return Problem(Tagger(9), (torch.randint(VOCABULARY, (BATCH, LENGTH)), torch.randint(9, (BATCH, LENGTH))))


class Translator(nn.Module):
    """GRU encoder and decoder with additive attention (Bahdanau et al. 2015), the decoder's cell called step by step.

    forward(source, lengths, target): (batch, length) int64, (batch,) int64, (batch, steps + 1) int64 -> the 0-d loss.
    """

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.cell = nn.GRUCell(2 * WIDTH, WIDTH)
        self.key, self.query = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.score = nn.Linear(WIDTH, 1, bias=False)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(2 * WIDTH, VOCABULARY)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        memory, last = self.encoder(self.drop(self.source(source)))
        keys, state = self.key(memory), last[0]
        padding = torch.arange(source.shape[1]) >= lengths[:, None]
        outputs = []
        for embedded in self.drop(self.target(target[:, :-1])).unbind(1):
            scores = self.score(torch.tanh(keys + self.query(state)[:, None])).squeeze(-1)
            weights = scores.masked_fill(padding, -torch.inf).softmax(-1)
            context = (weights[:, None] @ memory).squeeze(1)
            state = self.cell(torch.cat((embedded, context), dim=-1), state)
            outputs.append(torch.cat((state, context), dim=-1))
        logits = self.head(torch.stack(outputs, dim=1))
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())


def seq2seq_attention() -> Problem:
    """Translation of 12 tokens into 8, sources of different lengths."""
    source, target = torch.randint(VOCABULARY, (BATCH, 12)), torch.randint(VOCABULARY, (BATCH, 9))
    return Problem(Translator(), (source, torch.tensor([12, 9, 5, 11]), target))


class Forecaster(nn.Module):
    """LSTM cells over a time series, quantiles of the next value. forward(series): (batch, steps + 1, 3) -> loss."""

    def __init__(self, width: int = 24):
        super().__init__()
        self.first, self.second = nn.LSTMCell(3, width), nn.LSTMCell(width, width)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, 3)

    def forward(self, series: Tensor) -> Tensor:
        zeros = series.new_zeros(series.shape[0], self.first.hidden_size)
        low = high = (zeros, zeros)
        total = series.new_zeros(())
        for now, following in zip(series[:, :-1].unbind(1), series[:, 1:].unbind(1), strict=True):
            low = self.first(now, low)
            high = self.second(self.drop(low[0]), high)
            error = following[:, :1] - self.head(high[0])
            quantile = error.new_tensor([0.1, 0.5, 0.9])
            total = total + torch.maximum(quantile * error, (quantile - 1) * error).mean()
        return total / (series.shape[1] - 1)


def lstm_cell() -> Problem:
    """Two LSTM cells over 10 steps of a series, pinball loss."""
    return Problem(Forecaster(), (torch.randn(8, 11, 3).cumsum(1) * 0.3,))
