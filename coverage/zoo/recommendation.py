# SPDX-License-Identifier: Apache-2.0
"""Recommenders in plain torch: embedding bags and tables, crossed features, towers."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..harness.problem import Problem

BATCH, DENSE, FIELDS, CARDINALITY, WIDTH = 16, 8, 4, 50, 16


def _mlp(*widths: int, dropout: float = 0.1) -> nn.Sequential:
    """Linear layers with ReLU and dropout after each."""
    layers: list[nn.Module] = []
    for inner, outer in itertools.pairwise(widths):
        layers += [nn.Linear(inner, outer), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


def _clicks() -> Tensor:
    """(batch,) float32 of 0 and 1."""
    return torch.randint(2, (BATCH,)).float()


def _fields() -> Tensor:
    """(batch, fields) int64: one value for each categorical field."""
    return torch.randint(CARDINALITY, (BATCH, FIELDS))


class DLRM(nn.Module):
    """Deep learning recommendation model (Naumov et al. 2019): embedding bags, all dot products of pairs, two MLPs.

    forward(dense, values, offsets, clicks): (b, DENSE), FIELDS x (n,) int64 and (b,) int64 as nn.EmbeddingBag takes
    them, (b,) -> the 0-d binary cross entropy.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(CARDINALITY, WIDTH, mode="sum") for _ in range(FIELDS))
        self.bottom = _mlp(DENSE, 32, WIDTH)
        pairs = FIELDS * (FIELDS + 1) // 2
        self.top = nn.Sequential(_mlp(WIDTH + pairs, 32), nn.Linear(32, 1))

    def forward(self, dense: Tensor, values: list[Tensor], offsets: list[Tensor], clicks: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        bags = [bag(v, o) for bag, v, o in zip(self.bags, values, offsets, strict=True)]
        features = torch.stack([bottom, *bags], dim=1)
        products = features @ features.transpose(1, 2)
        low, high = torch.tril_indices(FIELDS + 1, FIELDS + 1, offset=-1)
        logits = self.top(torch.cat((bottom, products[:, low, high]), dim=1)).squeeze(-1)
        return F.binary_cross_entropy_with_logits(logits, clicks)


def dlrm() -> Problem:
    """DLRM with bags of 0 to 4 values."""
    values, offsets = [], []
    for _ in range(FIELDS):
        sizes = torch.randint(5, (BATCH,))
        offsets.append(sizes.cumsum(0) - sizes)
        values.append(torch.randint(CARDINALITY, (int(sizes.sum()),)))
    return Problem(DLRM(), (torch.randn(BATCH, DENSE), values, offsets, _clicks()))


class WideAndDeep(nn.Module):
    """Wide & deep (Cheng et al. 2016): a linear model of crossed features beside an MLP of embeddings.

    forward(dense, fields, crossed, clicks): (b, DENSE), (b, FIELDS), (b, n) int64 hashed crosses, (b,) -> the loss.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.EmbeddingBag(200, 1, mode="sum")
        self.tables = nn.ModuleList(nn.Embedding(CARDINALITY, WIDTH) for _ in range(FIELDS))
        self.deep = nn.Sequential(_mlp(DENSE + FIELDS * WIDTH, 64, 32), nn.Linear(32, 1))

    def forward(self, dense: Tensor, fields: Tensor, crossed: Tensor, clicks: Tensor) -> Tensor:
        embedded = [table(column) for table, column in zip(self.tables, fields.unbind(1), strict=True)]
        logits = self.deep(torch.cat([dense, *embedded], dim=1)) + self.wide(crossed)
        return F.binary_cross_entropy_with_logits(logits.squeeze(-1), clicks)


def wide_deep() -> Problem:
    """Wide & deep with 6 crossed features an example."""
    return Problem(WideAndDeep(), (torch.randn(BATCH, DENSE), _fields(), torch.randint(200, (BATCH, 6)), _clicks()))


class DeepFM(nn.Module):
    """DeepFM (Guo et al. 2017): a factorisation machine and an MLP on one table. forward(fields, clicks) -> loss."""

    starts: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("starts", torch.arange(FIELDS) * CARDINALITY)
        self.table = nn.Embedding(FIELDS * CARDINALITY, WIDTH)
        self.linear = nn.Embedding(FIELDS * CARDINALITY, 1)
        self.deep = nn.Sequential(_mlp(FIELDS * WIDTH, 32), nn.Linear(32, 1))

    def forward(self, fields: Tensor, clicks: Tensor) -> Tensor:
        rows = fields + self.starts
        embedded = self.table(rows)
        pairs = 0.5 * (embedded.sum(1).square() - embedded.square().sum(1)).sum(-1)
        logits = self.linear(rows).sum((1, 2)) + pairs + self.deep(embedded.flatten(1)).squeeze(-1)
        return F.binary_cross_entropy_with_logits(logits, clicks)


def deepfm() -> Problem:
    """DeepFM with 4 fields of 50 values."""
    return Problem(DeepFM(), (_fields(), _clicks()))


class TwoTower(nn.Module):
    """Two towers and a softmax over the batch's items (Yi et al. 2019). Item popularity is subtracted from the scores.

    forward(user, history, items, popularity): (b, DENSE), (b, n) int64, (b,) int64, (b,) probabilities -> the loss.
    """

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.EmbeddingBag(CARDINALITY, WIDTH, mode="mean", padding_idx=0)
        self.user_tower = nn.Sequential(_mlp(DENSE + WIDTH, 32), nn.Linear(32, WIDTH))
        self.item_tower = nn.Sequential(_mlp(WIDTH, 32), nn.Linear(32, WIDTH))

    def forward(self, user: Tensor, history: Tensor, items: Tensor, popularity: Tensor) -> Tensor:
        users = self.user_tower(torch.cat((user, self.items(history)), dim=1))
        found = self.item_tower(self.items(items[:, None]))
        scores = F.normalize(users, dim=-1) @ F.normalize(found, dim=-1).T / 0.1
        return F.cross_entropy(scores - popularity.log(), torch.arange(users.shape[0]))


def two_tower() -> Problem:
    """Two towers with a padded history of 8 items."""
    history = torch.randint(CARDINALITY, (BATCH, 8))
    history[:, 0] = torch.randint(1, CARDINALITY, (BATCH,))  # not one history is empty
    items = torch.randint(1, CARDINALITY, (BATCH,))
    return Problem(TwoTower(), (torch.randn(BATCH, DENSE), history, items, torch.rand(BATCH) * 0.5 + 0.1))


class DeepRecommender(nn.Module):
    """NVIDIA's deep autoencoder of ratings (Kuchaiev & Ginsburg 2017): SELU, heavy dropout, loss on the rated items."""

    def __init__(self, items: int = 60):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(items, 32), nn.SELU(), nn.Linear(32, WIDTH), nn.SELU(), nn.Dropout(0.8)),
            *(nn.Linear(WIDTH, 32), nn.SELU(), nn.Linear(32, items)),
        )

    def forward(self, ratings: Tensor) -> Tensor:
        """(b, items) float32, 0 where there is no rating -> the 0-d mean squared error over the ratings."""
        rated = ratings != 0
        error = torch.where(rated, self.layers(ratings) - ratings, 0.0)
        return error.square().sum() / rated.sum()


def deep_recommender() -> Problem:
    """An autoencoder of ratings, a fifth of them given."""
    ratings = torch.randint(1, 6, (BATCH, 60)).float() * (torch.rand(BATCH, 60) < 0.2)
    return Problem(DeepRecommender(), (ratings,))


class NextItem(nn.Module):
    """SASRec (Kang & McAuley 2018): causal attention over a user's items; each next item against a random other one.

    forward(items, others): (b, n + 1) int64 with 0 for padding, (b, n) int64 -> the 0-d loss.
    """

    def __init__(self, length: int):
        super().__init__()
        self.items = nn.Embedding(CARDINALITY, 32, padding_idx=0)
        self.position = nn.Embedding(length, 32)
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True, norm_first=True)

    def forward(self, items: Tensor, others: Tensor) -> Tensor:
        past, following = items[:, :-1], items[:, 1:]
        length = past.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.layer(self.items(past) + self.position(torch.arange(length)), src_mask=mask, is_causal=True)
        good, bad = (hidden * self.items(following)).sum(-1), (hidden * self.items(others)).sum(-1)
        loss = F.softplus(-good) + F.softplus(bad)
        known = following != 0
        return (loss * known).sum() / known.sum()


def sasrec() -> Problem:
    """Sequential recommendation over 12 items."""
    return Problem(NextItem(12), (torch.randint(CARDINALITY, (BATCH, 13)), torch.randint(1, CARDINALITY, (BATCH, 12))))
