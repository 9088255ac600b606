# SPDX-License-Identifier: Apache-2.0
"""Products of few rows: what is faster is measured once a machine, and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.devices.cpu import blas, gemm_autotuning
from relaxgrad.cli.cache import app as cli


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A line for each measurement of a process and machine that know nothing yet; 8 to 15 are faster generated."""
    seen: list[str] = []

    def measured() -> frozenset[int]:
        seen.append("measured")
        return frozenset(range(8, 16))

    monkeypatch.setenv("RELAXGRAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("RELAXGRAD_CACHE", raising=False)
    monkeypatch.setattr(gemm_autotuning, "_measured", measured)
    monkeypatch.setattr(gemm_autotuning, "_table", None)
    return seen


def products_run(rows: int) -> int:
    """How many products of `rows` rows were generated."""
    torch.compiler.reset()
    with record_graphs() as records:
        torch.compile(torch.mm, backend=relaxgrad)(torch.randn(rows, 32), torch.randn(32, 64))
    return sum(graph.kernels for graph in records)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_autotuning, "_table", None)


def test_each_number_of_rows_goes_where_it_is_faster(measurements: list[str]) -> None:
    assert [products_run(rows) for rows in (2, 3, 8, 15, 16, 24, 25)] == [0, 0, 1, 1, 0, 0, 0]
    assert len(measurements) == 1


def test_what_was_measured_is_kept(measurements: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    products_run(8)
    forget(monkeypatch)
    assert products_run(9) == 1
    assert len(measurements) == 1
    assert CliRunner().invoke(cli, ["clear"]).exit_code == 0
    forget(monkeypatch)
    products_run(10)
    assert len(measurements) == 2
    (table,) = json.loads((tmp_path / "cache" / "graphs" / "products.json").read_text()).values()
    assert table == list(range(8, 16))


@pytest.mark.parametrize("content", ["", "[1]", '{"x": 3}', '{"x": ["y"]}'])
def test_a_file_that_is_not_ours_is_measured_again(
    content: str, measurements: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    products_run(8)
    forget(monkeypatch)
    (tmp_path / "cache" / "graphs" / "products.json").write_text(content)
    assert products_run(9) == 1
    assert len(measurements) == 2


def test_nothing_is_measured_for_a_graph_without_such_products(measurements: list[str]) -> None:
    products_run(64)
    torch.compile(lambda x: x.sin(), backend=relaxgrad)(torch.randn(8, 8))
    assert not measurements


def test_nothing_is_kept_where_the_cache_is_off(
    measurements: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RELAXGRAD_CACHE", "0")
    products_run(8)
    assert measurements
    assert not (tmp_path / "cache").exists()


def test_nothing_is_kept_for_a_graph_that_is_not(measurements: list[str], tmp_path: Path) -> None:
    torch.compile(torch.mm, backend=relaxgrad, options={"cache": "off"})(torch.randn(8, 32), torch.randn(32, 64))
    assert measurements
    assert not (tmp_path / "cache").exists()


def test_a_read_only_folder_is_read(measurements: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    products_run(8)
    forget(monkeypatch)
    monkeypatch.setattr(gemm_autotuning.cache_folder.Folder, "prepare", lambda self: False)
    assert products_run(9) == 1
    assert len(measurements) == 1


def test_a_failure_leaves_products_to_the_blas_and_is_not_kept(
    measurements: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(keeps: bool) -> frozenset[int]:
        raise OSError("no more processes")

    with monkeypatch.context() as patched:
        patched.setattr(gemm_autotuning, "_kept_or_measured", fails)
        assert products_run(8) == 0
    with monkeypatch.context() as patched:
        patched.setattr(gemm_autotuning, "_measured", lambda: None)
        forget(patched)
        assert products_run(8) == 0
    forget(monkeypatch)
    assert products_run(8) == 1
    assert len(measurements) == 1


def test_machines_that_share_a_folder_keep_their_own_answers(
    measurements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for machine in range(2 * gemm_autotuning.KEPT):
        forget(monkeypatch)
        monkeypatch.setattr(gemm_autotuning, "environment", lambda _, machine=machine: [machine])
        products_run(8)
    forget(monkeypatch)
    products_run(9)  # the last one again
    assert len(measurements) == 2 * gemm_autotuning.KEPT
    assert len(gemm_autotuning._read()) == gemm_autotuning.KEPT


def test_measuring_changes_nothing_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_autotuning, "_is_faster", lambda rows: rows == 16 and torch.get_num_threads() == 1)
    threads = torch.get_num_threads()
    assert gemm_autotuning._measured() == frozenset(range(16, 25))
    assert torch.get_num_threads() == threads
    monkeypatch.setattr(gemm_autotuning, "_is_faster", lambda rows: 1 // 0)
    assert gemm_autotuning._measured() is None


def test_this_machine_can_be_measured() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        found = gemm_autotuning._measured()
    finally:
        torch.set_default_dtype(torch.float32)
    assert found is not None
    assert found <= frozenset(blas.SMALL_M)


@pytest.mark.parametrize(("ours", "theirs", "expected"), [(1.0, 2.0, True), (2.0, 1.0, False), (0.99, 1.0, False)])
def test_the_faster_of_both_by_their_best_times(
    ours: float, theirs: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = iter((1.0, 9.0) * gemm_autotuning.ROUNDS)  # noise that hits every other round

    def timed(*called: Any) -> list[float]:
        noise = next(slow)
        return [ours * noise, theirs * noise]

    monkeypatch.setattr(gemm_autotuning, "_seconds", timed)
    if "sgemm_" in blas.symbols():
        assert gemm_autotuning._is_faster(8) is expected
