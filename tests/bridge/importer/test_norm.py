# SPDX-License-Identifier: Apache-2.0
"""Normalisations: statistics as outputs, gradients, every float dtype, symbolic batch sizes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.bridge.importer.harness import run_test


def test_batch_norm_in_eval_mode_reads_running_statistics() -> None:
    def norm(x: Tensor, m: Tensor, v: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return F.batch_norm(x, m.detach(), v.detach(), w, b), F.batch_norm(x[..., 0], m.detach(), v.detach())

    statistics = torch.randn(3), torch.rand(3) + 0.5
    run_test(norm, torch.randn(4, 3, 5), *statistics, torch.randn(3), torch.randn(3))
    records = run_test(
        norm, torch.randn(4, 3, 5), *statistics, torch.randn(3), torch.randn(3), grad=False,
        ops=["aten._native_batch_norm_legit_no_training.default"],
    )  # fmt: skip
    assert records[0].kind == "inference"


def test_batch_norm_in_train_mode_updates_running_statistics() -> None:
    def norm(x: Tensor, m: Tensor, v: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        m, v = m.detach().clone(), v.detach().clone()
        return F.batch_norm(x, m, v, w, b, training=True), m, v

    inputs = (torch.randn(3), torch.rand(3) + 0.5, torch.randn(3), torch.randn(3))
    run_test(norm, torch.randn(4, 3, 5), *inputs, then=[(torch.randn(6, 3, 5), *inputs)], dynamic=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_group_norm_statistics_by_group(dtype: torch.dtype) -> None:
    def norm(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return torch.native_group_norm(x, w, b, x.shape[0], 6, x.shape[2] * x.shape[3], 3, 1e-5)

    inputs = (torch.randn(6, dtype=dtype), torch.randn(6, dtype=dtype))
    run_test(
        norm, torch.randn(2, 6, 3, 4, dtype=dtype), *inputs, then=[(torch.randn(3, 6, 5, 4, dtype=dtype), *inputs)],
        dynamic=True, ops=["aten.native_group_norm.default"],
    )  # fmt: skip


def test_group_norm_without_parameters_is_instance_norm() -> None:
    run_test(lambda x: F.instance_norm(x) * F.group_norm(x, 2), torch.randn(2, 4, 6))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_layer_norm_over_several_dims(dtype: torch.dtype) -> None:
    def norm(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return (*torch.native_layer_norm(x, (3, 4), w, b, 1e-5), F.layer_norm(x, (4,)), F.rms_norm(x, (3, 4), w))

    parameters = torch.randn(3, 4, dtype=dtype), torch.randn(3, 4, dtype=dtype)
    run_test(norm, torch.randn(5, 3, 4, dtype=dtype) + 2, *parameters)


def test_softmax_of_infinite_and_large_values() -> None:
    x = torch.tensor([[1e4, 1e4 - 1, -float("inf"), 0.0], [-1e4, -1e4 + 2, -1e4, -1e4]])
    run_test(lambda x: (x.softmax(-1), x.softmax(0), x[:, :2].log_softmax(-1)), x)


def test_modules_of_a_small_network_in_train_mode() -> None:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(3, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 2))
    names = [n for n, _ in network.named_parameters()]

    def call(x: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(network, dict(zip(names, parameters, strict=True)), (x,))

    run_test(call, torch.randn(5, 4), *network.parameters(), kinds={"native", "library"})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_batch_norm_of_halves_keeps_its_statistics_in_float32(dtype: torch.dtype) -> None:
    """As under autocast: a mean far from zero, rounded to half, would spoil the gradients of input and weight."""

    def norm(x: Tensor, m: Tensor, v: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        m, v = m.detach().clone(), v.detach().clone()
        saved = torch.native_batch_norm(x, w, None, None, None, True, 0.1, 1e-5)[1:]
        return F.batch_norm(x, m, v, w, b, training=True), m, v, *saved

    parameters = torch.randn(3), torch.rand(3) + 0.5, torch.randn(3), torch.randn(3)
    run_test(norm, (torch.randn(8, 3, 50) * 3 + 20).to(dtype), *parameters)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_ops_with_a_reserve(dtype: torch.dtype) -> None:
    def norm(x: Tensor, m: Tensor, v: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        m, v = m.detach().clone(), v.detach().clone()
        found = torch.ops.aten._batch_norm_with_update.default(x, w, b, m, v, 0.3, 1e-5)
        still = torch.ops.aten._batch_norm_no_update.default(x.detach(), w, b, m, v, 0.3, 1e-5)
        assert found[3].shape == still[3].shape == (0,)
        assert found[3].dtype is torch.uint8
        return *found[:3], m, v, still[0]

    inputs = (torch.randn(3), torch.rand(3) + 0.5, torch.randn(3), torch.randn(3))
    inputs = tuple(t.to(dtype) for t in inputs)
    x = [torch.randn(n, 3, 5).to(dtype) for n in (4, 7)]
    run_test(norm, x[0], *inputs, then=[(x[1], *inputs)], dynamic=True)


def test_group_norm_of_halves_keeps_its_statistics_in_float32() -> None:
    x = (torch.randn(4, 6, 40) * 3 + 20).bfloat16()

    def norm(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return F.group_norm(x, 3, w, b), F.group_norm(x, 2, w)

    run_test(norm, x, torch.randn(6), torch.randn(6), then=[(x[:2], torch.randn(6), torch.randn(6))], dynamic=True)
