"""Products of few rows: what is faster is measured once a machine, and kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from relaxgrad.bridge import blas
from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.compile import products
from relaxgrad.cli.cache import app as cli


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """The rows that are measured, in a process and on a machine that know nothing yet; 8 to 15 are faster generated."""
    seen: list[int] = []

    def is_faster(rows: int) -> bool:
        seen.append(rows)
        return rows == 8

    monkeypatch.setenv("RELAXGRAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("RELAXGRAD_CACHE", raising=False)
    monkeypatch.setattr(products, "_is_faster", is_faster)
    monkeypatch.setattr(products, "_table", None)
    return seen


def products_run(rows: int) -> int:
    """How many products of `rows` rows were generated."""
    torch.compiler.reset()
    with record_graphs() as records:
        torch.compile(torch.mm, backend=relaxgrad)(torch.randn(rows, 32), torch.randn(32, 64))
    return sum(graph.kernels for graph in records)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_table", None)


def test_each_number_of_rows_goes_where_it_is_faster(measurements: list[int]) -> None:
    assert [products_run(rows) for rows in (2, 3, 8, 15, 16, 24, 25)] == [0, 0, 1, 1, 0, 0, 0]
    assert measurements == list(products.ROWS)


def test_what_was_measured_is_kept(measurements: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    products_run(8)
    forget(monkeypatch)
    assert products_run(9) == 1
    assert measurements == list(products.ROWS)
    assert CliRunner().invoke(cli, ["clear"]).exit_code == 0
    forget(monkeypatch)
    products_run(10)
    assert measurements == 2 * list(products.ROWS)
    (table,) = json.loads((tmp_path / "cache" / "products.json").read_text()).values()
    assert table == list(range(8, 16))


@pytest.mark.parametrize("content", ["", "[1]", '{"x": 3}', '{"x": ["y"]}'])
def test_a_file_that_is_not_ours_is_measured_again(
    content: str, measurements: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    products_run(8)
    forget(monkeypatch)
    (tmp_path / "cache" / "products.json").write_text(content)
    assert products_run(9) == 1
    assert measurements == 2 * list(products.ROWS)


def test_nothing_is_measured_for_a_graph_without_such_products(measurements: list[int]) -> None:
    products_run(64)
    torch.compile(lambda x: x.sin(), backend=relaxgrad)(torch.randn(8, 8))
    assert not measurements


def test_nothing_is_kept_where_the_cache_is_off(
    measurements: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RELAXGRAD_CACHE", "0")
    products_run(8)
    assert measurements
    assert not (tmp_path / "cache").exists()


def test_a_failure_leaves_products_to_the_blas(measurements: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(rows: int) -> bool:
        raise RuntimeError("no LLVM")

    monkeypatch.setattr(products, "_is_faster", fails)
    threads = torch.get_num_threads()
    assert products_run(8) == 0
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("ours", "theirs", "expected"), [(1.0, 2.0, True), (2.0, 1.0, False), (0.99, 1.0, False)])
def test_the_faster_of_both_by_their_best_times(
    ours: float, theirs: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = iter((1.0, 9.0) * products.ROUNDS)  # noise that hits every other round

    def timed(*functions: Callable[[], None]) -> list[float]:
        for function in functions:
            function()
        noise = next(slow)
        return [ours * noise, theirs * noise]

    monkeypatch.setattr(products, "_fastest_in_turns", timed)
    if "sgemm_" in blas.symbols():
        assert products._is_faster(8) is expected
