# SPDX-License-Identifier: Apache-2.0
"""Networks for tables in plain torch: numbers and categories in the columns, one class or number for a row."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..harness.problem import Problem

BATCH, NUMBERS, CATEGORIES, CARDINALITY, WIDTH, CLASSES = 16, 6, 3, 12, 32, 3


def _rows() -> tuple[Tensor, Tensor, Tensor]:
    """(b, NUMBERS) float32, (b, CATEGORIES) int64, (b,) int64 classes."""
    categories = torch.randint(CARDINALITY, (BATCH, CATEGORIES))
    return torch.randn(BATCH, NUMBERS), categories, torch.randint(CLASSES, (BATCH,))


class ColumnTokens(nn.Module):
    """A token for each column (Gorishniy et al. 2021): (b, NUMBERS), (b, CATEGORIES) -> (b, 1 + columns, WIDTH).

    The first is the class token.
    """

    starts: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.randn(NUMBERS, WIDTH) * 0.2) for _ in range(2))
        self.table = nn.Embedding(CATEGORIES * CARDINALITY, WIDTH)
        self.register_buffer("starts", torch.arange(CATEGORIES) * CARDINALITY)
        self.class_token = nn.Parameter(torch.randn(WIDTH) * 0.2)

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        columns = numbers[..., None] * self.weight + self.bias
        first = self.class_token.expand(numbers.shape[0], 1, -1)
        return torch.cat((first, columns, self.table(categories + self.starts)), dim=1)


class FTTransformer(nn.Module):
    """FT-Transformer: pre-norm attention over the columns of each row. forward(numbers, categories, labels) -> loss."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = ColumnTokens()
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, dim_feedforward=64, dropout=0.1, batch_first=True, norm_first=True, activation=F.gelu
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))

    def forward(self, numbers: Tensor, categories: Tensor, labels: Tensor) -> Tensor:
        hidden = self.encoder(self.tokens(numbers, categories))
        return F.cross_entropy(self.head(hidden[:, 0]), labels)


def ft_transformer() -> Problem:
    """FT-Transformer on 9 columns."""
    return Problem(FTTransformer(), _rows())


class SaintLayer(nn.Module):
    """Attention over a row's columns, then over the batch's rows (Somepalli et al. 2021). Keeps (b, n, WIDTH)."""

    def __init__(self, columns: int):
        super().__init__()
        self.within = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.across = nn.MultiheadAttention(columns * WIDTH, 2, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(columns * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.within(x).flatten(1)[None]
        normed = self.norm(rows)
        rows = rows + self.across(normed, normed, normed, need_weights=False)[0]
        return rows[0].unflatten(-1, x.shape[1:])


class Saint(nn.Module):
    """SAINT with one layer. forward(numbers, categories, labels) -> the 0-d loss."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = ColumnTokens()
        self.layer = SaintLayer(1 + NUMBERS + CATEGORIES)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, numbers: Tensor, categories: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.layer(self.tokens(numbers, categories))[:, 0]), labels)


def saint() -> Problem:
    """SAINT: attention between the rows of a batch."""
    return Problem(Saint(), _rows())


def sparsemax(scores: Tensor) -> Tensor:
    """Projection of (..., n) scores onto the probabilities, many of them zero (Martins & Astudillo 2016, eq. 2-4)."""
    ordered, _ = scores.sort(dim=-1, descending=True)
    sums = ordered.cumsum(-1) - 1
    rank = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype)
    support = (rank * ordered > sums).sum(-1, keepdim=True)
    threshold = sums.gather(-1, support - 1) / support
    return (scores - threshold).clamp(min=0)


class GatedBlock(nn.Module):
    """Linear, batch norm, gated linear unit: (b, inner) -> (b, outer)."""

    def __init__(self, inner: int, outer: int):
        super().__init__()
        self.linear, self.norm = nn.Linear(inner, 2 * outer, bias=False), nn.BatchNorm1d(2 * outer)

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(self.norm(self.linear(x)))


class TabNet(nn.Module):
    """TabNet (Arik & Pfister 2021): in each of two steps a sparse mask chooses columns, a gated block reads them.

    forward(x, labels): (b, columns), (b,) int64 -> the 0-d loss with the entropy of the masks.
    """

    def __init__(self, columns: int, steps: int = 2, relaxation: float = 1.3):
        super().__init__()
        self.relaxation = relaxation
        self.norm = nn.BatchNorm1d(columns)
        self.shared = GatedBlock(columns, WIDTH)
        self.own = nn.ModuleList(GatedBlock(WIDTH, WIDTH) for _ in range(steps + 1))
        self.choose = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH // 2, columns, bias=False), nn.BatchNorm1d(columns)) for _ in range(steps)
        )
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(WIDTH // 2, CLASSES)

    def _read(self, x: Tensor, step: int) -> tuple[Tensor, Tensor]:
        shared = self.shared(x)
        output, attention = ((shared + self.own[step](shared)) * 0.5**0.5).chunk(2, dim=-1)
        return output, attention

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.norm(x)
        left, total, entropy = torch.ones_like(x), x.new_zeros(()), x.new_zeros(())
        _, attention = self._read(x, 0)
        for step, choose in enumerate(self.choose, start=1):
            mask = sparsemax(choose(attention) * left)
            left = left * (self.relaxation - mask)
            entropy = entropy - (mask * (mask + 1e-6).log()).sum(-1).mean()
            output, attention = self._read(x * mask, step)
            total = total + torch.relu(output)
        return F.cross_entropy(self.head(self.drop(total)), labels) + 1e-3 * entropy


def tabnet() -> Problem:
    """TabNet: masks by sparsemax (sort, cumulative sum, gather), gated linear units."""
    return Problem(TabNet(12), (torch.randn(BATCH, 12), torch.randint(CLASSES, (BATCH,))))


class NeuralTrees(nn.Module):
    """Soft oblivious trees (Popov et al. 2020): one soft split a level, leaves weighted by the product of the splits.

    forward(x, target): (b, columns), (b,) -> the 0-d Huber loss.
    """

    sides: Tensor

    def __init__(self, columns: int, trees: int = 8, depth: int = 3):
        super().__init__()
        self.choice = nn.Parameter(torch.randn(columns, trees * depth) * 0.5)
        self.threshold, self.scale = nn.Parameter(torch.randn(trees, depth)), nn.Parameter(torch.zeros(trees, depth))
        self.leaves = nn.Parameter(torch.randn(trees, 2**depth) * 0.5)
        sides = (torch.arange(2**depth)[:, None] >> torch.arange(depth)) & 1  # (leaves, depth)
        self.register_buffer("sides", sides.bool())
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        values = (self.drop(x) @ self.choice.softmax(0)).unflatten(-1, self.threshold.shape)
        right = torch.sigmoid((values - self.threshold) * self.scale.exp())[:, :, None]
        weights = torch.where(self.sides, right, 1 - right).prod(-1)
        return F.huber_loss((weights * self.leaves).sum((1, 2)), target)


def neural_trees() -> Problem:
    """Soft decision trees: products over splits, shifts and masks of integers, Huber loss."""
    return Problem(NeuralTrees(8), (torch.randn(BATCH, 8), torch.randn(BATCH) * 2))
