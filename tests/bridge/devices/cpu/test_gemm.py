# SPDX-License-Identifier: Apache-2.0
"""Matrix products called from generated code: operands of every layout, biases, batches, symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest import mock

import pytest
import torch

from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.devices.cpu import blas, gemm_autotuning
from relaxgrad.bridge.devices.cpu.compute import gemm, small_m_gemm
from relaxgrad.bridge.devices.cpu.ops.gemm import ENOUGH_TO_TURN
from tests.bridge.importer.harness import run_test

LIBRARY = {"library"}
BOTH = LIBRARY | {"native"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_mm_reads_transposed_and_sliced_operands_where_they_lie(dtype: torch.dtype) -> None:
    def products(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x @ w, x.t() @ x, w.t() @ x.t(), x[:, 1:3] @ w[1:3], x[1:2] @ w[:, :1], x[:, :1] @ w[:1]

    records = run_test(products, torch.randn(6, 4, dtype=dtype), torch.randn(4, 7, dtype=dtype), kinds=BOTH)
    assert all(not r.reasons for r in records)


def test_mm_copies_an_operand_without_contiguous_rows_or_columns() -> None:
    run_test(lambda x, w: x[::2, ::2] @ w[::2], torch.randn(6, 8), torch.randn(8, 5), kinds=BOTH)


def test_mm_of_an_expanded_operand() -> None:
    run_test(lambda x, w: x.expand(5, 4) @ w, torch.randn(1, 4), torch.randn(4, 3), kinds=BOTH)


@pytest.mark.parametrize("alpha", [1, 0.5])
@pytest.mark.parametrize("bias", [(7,), (6, 1), (6, 7), (1,)], ids=str)
def test_addmm_starts_from_a_broadcast_bias(bias: tuple[int, ...], alpha: float) -> None:
    run_test(
        lambda b, x, w: torch.addmm(b, x, w, alpha=alpha),
        torch.randn(bias), torch.randn(6, 4), torch.randn(4, 7),
        kinds=BOTH if alpha != 1 or bias != (6, 7) else LIBRARY,
        ops={"aten.addmm.default"},
    )  # fmt: skip


def test_addmm_with_a_scaled_bias() -> None:
    run_test(
        lambda b, x, w: torch.addmm(b, x, w, beta=0.25),
        torch.randn(7), torch.randn(6, 4), torch.randn(4, 7), kinds=BOTH,
    )  # fmt: skip


def test_bmm_of_permuted_heads() -> None:
    def attention(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        heads = q.view(2, 5, 3, 4).transpose(1, 2), k.view(2, 5, 3, 4).transpose(1, 2)
        return heads[0] @ heads[1].transpose(-1, -2)

    run_test(attention, torch.randn(2, 5, 12), torch.randn(2, 5, 12), kinds=BOTH)


def test_products_with_symbolic_sizes() -> None:
    def step(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.addmm(b, x, w), torch.bmm(x.view(-1, 2, 4), x.view(-1, 4, 2))

    def inputs(rows: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(rows, 8), torch.randn(8, 3), torch.randn(3)

    run_test(step, *inputs(4), then=[inputs(6), inputs(3)], dynamic=True, kinds=BOTH)


def test_a_batch_of_symbolic_count_is_one_call() -> None:
    def step(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a.permute(1, 0, 2), b.permute(1, 2, 0))

    def inputs(count: int, rows: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(rows, count, 6), torch.randn(5, count, 6)

    with record_graphs() as records:
        compiled = torch.compile(step, backend=relaxgrad, dynamic=True, options={"cache": "off"})
        for pair in (inputs(4, 3), inputs(9, 7)):
            torch.testing.assert_close(compiled(*pair), step(*pair))
    assert len(records) == 1
    assert records[0].kernels == 1  # and no call of ATen


def test_products_of_symbolic_sizes_that_become_nothing() -> None:
    """No rows, no inner size, no batch: reached by slices, since torch.compile makes an input's zero a number."""

    def step(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batches = torch.bmm(a[:, 2:], b), torch.bmm(a[:, :, 2:], b[:, 2:]), torch.bmm(a[2:], b[2:])
        return *batches, a[0, 2:] @ b[0], a[0, :, 2:] @ b[0, 2:]

    compiled = torch.compile(step, backend=relaxgrad, dynamic=True, options={"cache": "off"})
    for batch, rows, inner in ((4, 5, 6), (4, 2, 6), (4, 5, 2), (2, 5, 6), (3, 3, 3)):
        given = torch.randn(batch, rows, inner), torch.randn(batch, inner, 7)
        for seen, wanted in zip(compiled(*given), step(*given), strict=True):
            torch.testing.assert_close(seen, wanted)


def test_windows_that_overlap_along_a_symbolic_size() -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.unfold(0, 4, 1) @ w, x.unfold(0, 4, 2) @ w

    run_test(
        step, torch.randn(40), torch.randn(4, 8), then=[(torch.randn(31), torch.randn(4, 8))],
        dynamic=True, grad=False, kinds=LIBRARY,
    )  # fmt: skip


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


@pytest.fixture
def _slow_for_small_m() -> Iterator[None]:
    """Products of few rows are generated, whatever this CPU: its vectors may be narrower, not the result other."""
    with mock.patch.object(gemm_autotuning, "rows_to_generate", return_value=frozenset(blas.SMALL_M)):
        yield


@pytest.mark.usefixtures("_slow_for_small_m")
@pytest.mark.parametrize("rows", [3, 8, 9, 24])
@pytest.mark.parametrize(("inner", "columns"), [(5, 48), (300, 100), (256, 64), (513, 1000)])
def test_a_product_of_small_m_is_generated(rows: int, inner: int, columns: int) -> None:
    with mock.patch.object(gemm, "product", side_effect=AssertionError("the BLAS was called")):
        run_test(torch.mm, torch.randn(rows, inner), torch.randn(inner, columns), grad=False)


@pytest.mark.usefixtures("_slow_for_small_m")
@pytest.mark.parametrize("alpha", [1, -1.5])
@pytest.mark.parametrize("start", [(56,), (8, 1), (1, 56), (8, 56), (1,), ()], ids=str)
def test_a_product_of_small_m_starts_from_a_broadcast_tensor(start: tuple[int, ...], alpha: float) -> None:
    run_test(
        lambda s, x, w: torch.addmm(s, x, w, alpha=alpha),
        torch.randn(start), torch.randn(8, 20), torch.randn(20, 56), grad=False, ops={"aten.addmm.default"},
    )  # fmt: skip


@pytest.mark.usefixtures("_slow_for_small_m")
def test_factors_of_small_m_are_read_where_they_lie() -> None:
    def products(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[4:9] @ w[10:30, 16:80], x[:5, :7] @ w[3:10], x[::4] @ w[:20], x[:4, 3:] @ w[3:20, -48:]

    run_test(products, torch.randn(20, 20), torch.randn(40, 80), grad=False)

    def of_stacks(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[2] @ w[0], x[:, 3, :10] @ w[0, 10:, 8:], x[1, ::2, 2:] @ w[0, :18]

    run_test(of_stacks, torch.randn(3, 8, 20), torch.randn(1, 30, 60)[:, :20], grad=False)


@pytest.mark.usefixtures("_slow_for_small_m")
def test_a_transposed_matrix_that_many_products_read_is_turned_once() -> None:
    def steps(count: int) -> Callable[..., torch.Tensor]:
        def run(h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            for _ in range(count):
                h = torch.tanh(h @ w.t())
            return h

        return run

    with mock.patch.object(small_m_gemm, "product", side_effect=small_m_gemm.product) as generated:
        run_test(steps(ENOUGH_TO_TURN), torch.randn(4, 64), torch.randn(64, 64) / 8, grad=False)
        assert generated.call_count == 1  # one kernel for all of them
        run_test(steps(ENOUGH_TO_TURN - 1), torch.randn(4, 64), torch.randn(64, 64) / 8, grad=False, kinds=BOTH)
        assert generated.call_count == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_blas_too_gets_the_turned_matrix(dynamic: bool) -> None:
    class Steps(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(64, 64) / 8)

        def forward(self, h: torch.Tensor) -> torch.Tensor:
            for _ in range(ENOUGH_TO_TURN):
                h = torch.tanh(h @ self.w.t())
            return h

    model = Steps()
    with (
        mock.patch.object(gemm_autotuning, "rows_to_generate", return_value=frozenset()),
        mock.patch.object(gemm, "product", side_effect=gemm.product) as called,
    ):
        options = {"cache": "off", "compile_in": "here"}
        compiled = torch.compile(model, backend=relaxgrad, dynamic=dynamic or None, options=options)
        with torch.no_grad():
            for rows in (4, 5):
                h = torch.randn(rows, 64)
                torch.testing.assert_close(compiled(h), model(h))
    assert {call.args[3].transposed for call in called.call_args_list} == {False}


@pytest.mark.usefixtures("_slow_for_small_m")
@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 64), (64, 64)), ((25, 64), (64, 64)), ((8, 64), (64, 47))],
    ids=["too few rows", "too many rows", "too few columns"],
)
def test_other_products_call_the_blas(left: tuple[int, int], right: tuple[int, int]) -> None:
    run_test(torch.mm, torch.randn(left), torch.randn(right), grad=False, kinds=LIBRARY)


@pytest.mark.usefixtures("_slow_for_small_m")
def test_products_of_small_m_propagate_nan_and_infinity() -> None:
    x, w = torch.randn(8, 300), torch.randn(300, 64)
    x[1, 2], x[3, 299], w[5, 63] = float("nan"), float("inf"), float("-inf")
    run_test(torch.mm, x, w, grad=False)
