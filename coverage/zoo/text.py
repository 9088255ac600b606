# SPDX-License-Identifier: Apache-2.0
"""Sizes and batches that the text models of the zoo share, and torch's own transformer encoder.

Batch 4, 24 tokens, width 64, 2 layers. Dropout is 0.1 wherever the architecture has it. The Hugging Face models
(text_encoders.py, text_decoders.py, text_seq2seq.py) compute their loss from labels and use the attention
implementation a user gets (SDPA where the model has it).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..harness.problem import Problem

VOCABULARY, WIDTH, HEADS, LAYERS, BATCH, LENGTH = 128, 64, 4, 2, 4, 24

# The configuration of the many models that name their sizes as BERT does.
BERT_LIKE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 2 * WIDTH,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}


class EncoderModel(nn.Module):
    """Token classifier on nn.TransformerEncoder. forward(tokens, labels): (batch, length) int64 -> the 0-d loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, dim_feedforward=2 * WIDTH, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        hidden = self.encoder(self.embedding(tokens) + self.position)
        return F.cross_entropy(self.head(hidden).flatten(0, 1), labels.flatten())


def tokens(length: int = LENGTH) -> Tensor:
    """(batch, length) int64, from 3 up: the first few are padding, begin and end tokens in most configurations."""
    return torch.randint(3, VOCABULARY, (BATCH, length))


def padded_mask(length: int = LENGTH) -> Tensor:
    """1 for a token, 0 for padding, (batch, length) int64: rows of different lengths, as in a real batch."""
    lengths = torch.tensor([length, length - 3, length - 8, length - 1])
    return (torch.arange(length) < lengths[:, None]).long()


def causal_problem(model: nn.Module) -> Problem:
    """Next-token prediction on unpadded rows: the labels are the inputs, shifted inside the model."""
    batch = tokens()
    # The loss transformers picks anyway for these classes, but for some with a logged warning, at which Dynamo
    # breaks the graph.
    model.loss_type = "ForCausalLM"  # type: ignore[assignment]  # a plain attribute, where nn.Module declares tensors
    return Problem(model, kwargs={"input_ids": batch, "labels": batch})


def masked_problem(model: nn.Module, length: int = LENGTH) -> Problem:
    """Every token predicted from the whole of a padded row."""
    batch, mask, labels = tokens(length), padded_mask(length), tokens(length)
    return Problem(model, kwargs={"input_ids": batch, "attention_mask": mask, "labels": labels})


def transformer_encoder() -> Problem:
    """nn.TransformerEncoder, two layers, post-norm."""
    return Problem(EncoderModel(), (tokens(), tokens()))
