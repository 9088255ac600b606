# SPDX-License-Identifier: Apache-2.0
"""Reads and writes at indices: negative, repeated, broadcast, zipped, out of range; embeddings; masks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from relaxgrad.bridge.backend import relaxgrad
from tests.bridge.importer.harness import run_test


def test_advanced_indexing_reads_and_adds_gradients_of_repeated_indices() -> None:
    i, j = torch.tensor([[0, -1], [2, 0]]), torch.tensor([1, 3])

    def index(x: Tensor) -> list[Tensor]:
        return [x[i], x[:, i], x[i, j], x[:, j, :][0], x[i, :, j], x[None, i[0]], x[j - 1, 1:, j]]

    run_test(index, torch.randn(3, 4, 5), ops=["aten.index.Tensor", "aten.index_put.default"])


def test_index_put_replaces_and_accumulates() -> None:
    i, j = torch.tensor([0, 2, 0]), torch.tensor([1, -1, 1])

    def put(x: Tensor, v: Tensor) -> list[Tensor]:
        a, b, c = x.clone(), x.clone(), x.clone()
        a[torch.tensor([0, 2]), 1:] = v[0, 0] * 2
        b.index_put_((i, j), v[0], accumulate=True)
        c.index_put_((i,), v[:, :1], accumulate=True)
        return [a, b, c]

    run_test(put, torch.randn(3, 4), torch.randn(3, 3))


def test_embeddings_with_padding_and_repeats() -> None:
    i = torch.tensor([[1, 2, 1], [0, 4, 1]])
    run_test(
        lambda w, h: (F.embedding(i, w, padding_idx=1), F.embedding(i, w * 2), F.embedding(i, h)),
        torch.randn(5, 3), torch.randn(5, 2).bfloat16(), ops=["aten.embedding_dense_backward.default"],
    )  # fmt: skip


def test_gather_scatter_and_selects_with_symbolic_sizes() -> None:
    def selects(x: Tensor, i: Tensor) -> list[Tensor]:
        return [
            x.gather(1, i), x.scatter(1, i, 3.0), x.scatter(1, i, i * 0.5), x.scatter_add(1, i, x[:, : i.shape[1]]),
            x.index_select(1, i[0]), x.take_along_dim(i, 1), x[torch.arange(3), i[:, 0]],
        ]  # fmt: skip

    def inputs(n: int) -> tuple[Tensor, Tensor]:
        return torch.randn(3, n), torch.stack([torch.randperm(n)[: n - 1] for _ in range(3)])

    run_test(selects, *inputs(5), then=[inputs(7)], dynamic=True)


@pytest.mark.parametrize("bad", [5, -6])
def test_an_index_out_of_range_raises_and_the_next_call_works(bad: int) -> None:
    def reads(x: Tensor, i: Tensor) -> Tensor:
        return F.embedding(i.abs() if bad > 0 else i, x) if bad > 0 else x[i]

    compiled = torch.compile(reads, backend=relaxgrad)
    x = torch.randn(5, 2)
    with pytest.raises(IndexError, match="out of range"):
        compiled(x, torch.tensor([0, bad]))
    good = torch.tensor([4, 0])
    assert torch.equal(compiled(x, good), x[good])


def test_a_bad_index_of_a_write_raises() -> None:
    compiled = torch.compile(lambda x, i, v: x.index_put((i,), v, accumulate=True), backend=relaxgrad)
    with pytest.raises(IndexError, match="out of range"):
        compiled(torch.randn(3), torch.tensor([3]), torch.randn(1))


def test_tensors_made_from_nothing() -> None:
    def made(x: Tensor) -> list[Tensor]:
        n = x.shape[0]
        return [
            torch.arange(n) + 1, torch.arange(1, 9, 3) * x[0, 0], torch.arange(0.5, 3.0, 0.5), torch.linspace(0, 1, 7),
            torch.full((2, n), 3.5), torch.ones_like(x, dtype=torch.int64) * n, x.new_full((2,), 7), torch.eye(3),
            torch.full_like(x, n) + x, torch.zeros(n, 2) + x[:, :1], x * n, torch.tensor(4.0) * x,
            x.new_zeros(3) + x[0, 0],
        ]  # fmt: skip

    run_test(made, torch.randn(4, 3), then=[(torch.randn(6, 3),)], dynamic=True)


def test_tensors_without_memory_of_their_own_are_zeros() -> None:
    run_test(lambda x: torch.ops.aten._efficientzerotensor([3, 4], dtype=torch.float32) + x, torch.randn(3, 4))


@pytest.mark.parametrize("offset", [0, 1, -2])
def test_indices_of_a_triangle(offset: int) -> None:
    def triangles(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tril_indices(3, 5, offset) + x, torch.triu_indices(4, 3, offset, dtype=torch.int32) + 1

    run_test(triangles, torch.ones(1, dtype=torch.int64))


def test_embedding_gradient_scaled_by_how_often_a_row_was_read() -> None:
    def read(w: Tensor, i: Tensor) -> Tensor:
        return F.embedding(i, w, padding_idx=3, scale_grad_by_freq=True)

    run_test(read, torch.randn(5, 3), torch.tensor([[0, 2, 2], [4, 2, 3]]), then=[(torch.randn(5, 3), torch.arange(3))])


@pytest.mark.parametrize("p", [2.0, 1.0, float("inf")])
def test_rows_of_an_embedding_scaled_down_to_a_norm(p: float) -> None:
    i = torch.tensor([0, 2, 2, 4])

    def read(w: Tensor) -> tuple[Tensor, Tensor]:
        weight = w.clone()
        rows = F.embedding(i, weight, max_norm=1.0, norm_type=p)
        return rows, weight * 2

    run_test(
        read, torch.randn(5, 6) * torch.tensor([[0.01], [1], [1], [1], [1]]), ops=["aten.embedding_renorm.default"]
    )
