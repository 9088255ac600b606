# SPDX-License-Identifier: Apache-2.0
"""Writes at indices: repeated ones, reductions, masks, flat positions, strided memory, bounds."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from relaxgrad.bridge.backend import relaxgrad
from tests.bridge.importer.harness import run_test


@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce_with_repeated_indices(include_self: bool) -> None:
    index = torch.tensor([[0, 2, 0, 0], [1, 1, 1, 4]])

    def reductions(x: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        names = ("sum", "mean", "amax", "amin")
        values = [x.scatter_reduce(1, index, s, n, include_self=include_self) for n in names]
        return (*values, x.detach().scatter_reduce(0, index, s.detach(), "prod", include_self=include_self))

    run_test(reductions, torch.randn(5, 5), torch.randn(2, 4), ops=["aten.scatter_reduce.two"])


def test_scatter_reduce_takes_every_dtype() -> None:
    index = torch.tensor([0, 2, 0, 0, 3, 3])
    names = ("sum", "mean", "amax", "amin", "prod")
    dtypes = (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int8)

    def reductions(x: Tensor, s: Tensor) -> list[Tensor]:
        pairs = [(x.to(d), s.to(d)) for d in dtypes]
        return [a.scatter_reduce(0, index, b, n, include_self=n != "amax") for n in names for a, b in pairs]

    run_test(reductions, torch.randn(5) * 3, torch.randn(6) * 3, grad=False)


def test_index_reduce_and_index_add_over_slices() -> None:
    index = torch.tensor([2, 0, 2])

    def reductions(x: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        return (
            x.index_reduce(1, index, s, "mean"),
            x.index_reduce(1, index, s, "amax", include_self=False),
            x.index_add(1, index, s, alpha=2),
            x.index_copy(1, torch.tensor([2, 0, 1]), s),
            x.index_fill(1, torch.tensor([1]), 3.0),
        )

    run_test(reductions, torch.randn(2, 4, 3), torch.randn(2, 3, 3), ops=["aten.index_reduce.default"])


def test_scatter_of_symbolic_sizes() -> None:
    def scatters(x: Tensor, i: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        return x.scatter_add(0, i, s), x.scatter_reduce(0, i, s, "mean"), x.scatter(0, i, 2.0), x.gather(0, i)

    def inputs(n: int, m: int) -> tuple[Tensor, ...]:
        return torch.randn(n, 3), torch.randint(0, n, (m, 3)), torch.randn(m, 3)

    run_test(scatters, *inputs(4, 6), then=[inputs(7, 3), inputs(3, 9)], dynamic=True)


def test_put_and_take_at_flat_positions_also_negative() -> None:
    i = torch.tensor([[0, 7], [-1, 7]])

    def puts(x: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        return x.put(i, s, accumulate=True), x.put(i[0], s[1]), x.take(i)

    run_test(puts, torch.randn(3, 4), torch.randn(2, 2), ops=["aten.put.default"])


def test_masked_scatter_takes_values_in_order() -> None:
    mask = torch.rand(3, 4) > 0.5

    def scatter(x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        return x.masked_scatter(mask, s), x.masked_scatter(mask[0], s)

    ops = ["aten.masked_scatter.default", "aten.masked_scatter_backward.default"]
    run_test(scatter, torch.randn(3, 4), torch.randn(2, 7), ops=ops)


def test_masked_scatter_of_too_few_values_raises() -> None:
    compiled = torch.compile(lambda x, m, s: x.masked_scatter(m, s), backend=relaxgrad)
    x, mask = torch.randn(3, 4), torch.ones(3, 4, dtype=torch.bool)
    with pytest.raises(RuntimeError, match="more true elements"):
        compiled(x, mask, torch.randn(5))
    assert torch.equal(compiled(x, ~mask, torch.randn(5)), x)


def test_scatter_reduce_of_an_index_out_of_range_raises() -> None:
    compiled = torch.compile(lambda x, i, s: x.scatter_reduce(0, i, s, "sum"), backend=relaxgrad)
    with pytest.raises(IndexError, match="out of range"):
        compiled(torch.randn(3), torch.tensor([0, 3]), torch.randn(2))


def test_assigning_under_a_mask_is_a_where() -> None:
    def assign(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x.clone(), y.clone()
        a[x > 0] = 0.0
        b[y[:, 0] > 0] = 2.5
        return a, b

    run_test(assign, torch.randn(3, 4), torch.randn(6, 2))


def test_replication_padding_adds_the_edges() -> None:
    def pads(x: Tensor) -> tuple[Tensor, ...]:
        return (
            F.pad(x, (1, 2, 3, 0), mode="replicate"),
            F.pad(x[0], (2, -1), mode="replicate"),
            F.pad(x[None], (1, 1, 0, 2, 2, 1), mode="replicate"),
            F.pad(x, (2, 1, 0, 2), mode="reflect"),
            F.pad(x, (2, 1), mode="circular") if x.dim() == 3 else F.pad(x, (2, 1, 0, 1), mode="circular"),
        )

    run_test(pads, torch.randn(2, 3, 4, 5), ops=["aten.replication_pad2d_backward.default"])


def test_writes_into_strided_memory() -> None:
    run_test(lambda x, s: torch.as_strided_scatter(x, s, (2, 3), (1, 4), 1) * 2, torch.randn(4, 5), torch.randn(2, 3))


def test_scatter_with_a_reduction_by_name() -> None:
    index = torch.tensor([[0, 2, 0, 0], [1, 1, 1, 4]])

    def scatters(x: Tensor, s: Tensor) -> list[Tensor]:
        by_tensor = [x.scatter(1, index, s, reduce="add"), x.scatter(1, index, s, reduce="multiply")]
        return [*by_tensor, x.scatter(1, index, 2.5, reduce="multiply"), x.scatter(0, index, 2, reduce="add")]

    ops = ["aten.scatter.reduce", "aten.scatter.value_reduce"]
    run_test(scatters, torch.randn(5, 5), torch.randn(2, 4), grad=False, ops=ops)
