"""Matrix products called from generated code: operands of every layout, biases, batches, symbolic sizes."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from relaxgrad.bridge import blas
from relaxgrad.bridge.backend import record_graphs
from relaxgrad.bridge.importer.compute import gemm
from tests.bridge.importer.harness import run_test

LIBRARY = {"library"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_mm_reads_transposed_and_sliced_operands_where_they_lie(dtype: torch.dtype) -> None:
    def products(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x @ w, x.t() @ x, w.t() @ x.t(), x[:, 1:3] @ w[1:3], x[1:2] @ w[:, :1], x[:, :1] @ w[:1]

    records = run_test(
        products, torch.randn(6, 4, dtype=dtype), torch.randn(4, 7, dtype=dtype), kinds=LIBRARY | {"native"}
    )
    assert all(not r.reasons for r in records)


def test_mm_copies_an_operand_without_contiguous_rows_or_columns() -> None:
    run_test(lambda x, w: x[::2, ::2] @ w[::2], torch.randn(6, 8), torch.randn(8, 5), kinds=LIBRARY | {"native"})


def test_mm_of_an_expanded_operand() -> None:
    run_test(lambda x, w: x.expand(5, 4) @ w, torch.randn(1, 4), torch.randn(4, 3), kinds=LIBRARY | {"native"})


@pytest.mark.parametrize("alpha", [1, 0.5])
@pytest.mark.parametrize("bias", [(7,), (6, 1), (6, 7), (1,)], ids=str)
def test_addmm_starts_from_a_broadcast_bias(bias: tuple[int, ...], alpha: float) -> None:
    run_test(
        lambda b, x, w: torch.addmm(b, x, w, alpha=alpha),
        torch.randn(bias), torch.randn(6, 4), torch.randn(4, 7),
        kinds=LIBRARY | {"native"} if alpha != 1 or bias != (6, 7) else LIBRARY,
        ops={"aten.addmm.default"},
    )  # fmt: skip


def test_addmm_with_a_scaled_bias() -> None:
    run_test(
        lambda b, x, w: torch.addmm(b, x, w, beta=0.25),
        torch.randn(7), torch.randn(6, 4), torch.randn(4, 7), kinds=LIBRARY | {"native"},
    )  # fmt: skip


def test_bmm_of_permuted_heads() -> None:
    def attention(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        heads = q.view(2, 5, 3, 4).transpose(1, 2), k.view(2, 5, 3, 4).transpose(1, 2)
        return heads[0] @ heads[1].transpose(-1, -2)

    run_test(attention, torch.randn(2, 5, 12), torch.randn(2, 5, 12), kinds=LIBRARY | {"native"})


def test_products_with_symbolic_sizes() -> None:
    def step(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.addmm(b, x, w), torch.bmm(x.view(-1, 2, 4), x.view(-1, 4, 2))

    def inputs(rows: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(rows, 8), torch.randn(8, 3), torch.randn(3)

    run_test(step, *inputs(4), then=[inputs(6), inputs(3)], dynamic=True, kinds=LIBRARY | {"native"})


def test_an_inner_size_of_zero_gives_zeros() -> None:
    def step(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.addmm(torch.ones(2), a, b), a @ b, torch.bmm(a[None], b[None])

    with record_graphs() as records:
        results = torch.compile(step, backend="relaxgrad", fullgraph=True)(torch.ones(3, 0), torch.ones(0, 2))
    assert not records[0].reasons
    for seen, wanted in zip(results, (torch.ones(3, 2), torch.zeros(3, 2), torch.zeros(1, 3, 2)), strict=True):
        assert torch.equal(seen, wanted)


def test_without_a_blas_products_go_through_aten() -> None:
    with mock.patch.object(blas, "symbols", return_value=frozenset()):
        run_test(lambda x, w: x @ w, torch.randn(6, 4), torch.randn(4, 7), kinds=LIBRARY)


def test_matrix_says_when_a_layout_has_no_blas_form() -> None:
    assert gemm.matrix(4, 5, 10, 2) is None
    assert gemm.matrix(4, 5, 0, 1) is None, "rows that overlap"
    assert gemm.matrix(4, 5, 1, 4) == gemm.Matrix(4, 5, True, 4)
    assert gemm.matrix(1, 5, 999, 1) == gemm.Matrix(1, 5, False, 5), "the step of a single row has no meaning"
