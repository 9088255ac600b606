# SPDX-License-Identifier: Apache-2.0
"""Views: pieces without elements, windows, 0-d tensors, strided reads; gradients through chains of them."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.bridge.importer.harness import run_test


def test_split_keeps_the_others_where_one_piece_is_empty() -> None:
    def split(x: Tensor) -> tuple[Tensor, ...]:
        a, b, c = x.split([2, 0, 3], 1)
        return a * 2, c + 1, torch.cat([c, b, a], 1) * x

    run_test(split, torch.randn(2, 5))


def test_chains_of_views_with_symbolic_sizes() -> None:
    def chain(x: Tensor) -> tuple[Tensor, ...]:
        y = x.transpose(0, 1)[1:, ::2].unsqueeze(1)
        return (
            y.expand(-1, 3, -1).reshape(-1) * 2,
            x.unfold(0, 2, 1) * 3,
            x.flatten().view(-1, x.shape[0]) + 1,
            x.diagonal() * x[0, 0],
            *(t * 2 for t in x.unbind(1)),
            x.chunk(2, 1)[1].squeeze(-1) * 5,
        )

    run_test(chain, torch.randn(4, 3), then=[(torch.randn(6, 3),), (torch.randn(9, 3),)], dynamic=True)


def test_views_of_a_0d_tensor() -> None:
    def views(x: Tensor) -> tuple[Tensor, ...]:
        i = torch.tensor([0])
        return x.unfold(0, 1, 1) * 2, x.index_select(0, i) * 3, x.expand(2, 3) * 4, x.view(1, 1) + 1, x.squeeze() * 5

    run_test(views, torch.tensor(1.5))


def test_copies_of_views() -> None:
    def copies(x: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.permute_copy(x, (1, 0)),
            torch.view_copy(x, (3, 4)),
            torch.narrow_copy(x, 1, 1, 2),
            torch.as_strided_copy(x, (2, 2), (1, 3), 1),
            *torch.unbind_copy(x),
            torch.slice_copy(x, 0, 1, None, 2),
        )

    run_test(copies, torch.randn(4, 3))


def test_joins_and_writes_into_slices() -> None:
    def joins(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = x.clone()
        z[1:, ::2] = y[:1, :2]
        z[0] = y[1]
        w = x.clone()
        w.diagonal().copy_(y[0])
        return (
            torch.cat([x, y, x]),
            torch.stack([x[:2], y], 1),
            x.flip(0, 1).roll(1, 0),
            x.repeat(2, 3),
            x.rot90(),
            z,
            w,
            torch.nn.functional.pad(x, (1, -1, 2, 0), value=3.0),
            x.tril(-1) + x.triu(1),
        )

    run_test(joins, torch.randn(3, 3), torch.randn(2, 3))
