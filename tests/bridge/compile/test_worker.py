# SPDX-License-Identifier: Apache-2.0
"""Graphs that a child process compiles: the same results, and whatever becomes of the child costs time only."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor, nn

from relaxgrad.bridge import forked
from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.compile import driver, worker
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.schemas import GraphKind, GraphRecord


@pytest.fixture(autouse=True)
def small_graphs_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(worker, "LEAST_NODES", 1)
    monkeypatch.setattr(worker, "_unfit", False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    torch.compiler.reset()
    gc.collect()
    assert list(tmp_path.glob("relaxgrad-*")) == []  # no folder is left
    assert [p for p in psutil.Process().children() if p.status() == psutil.STATUS_ZOMBIE] == []


@pytest.fixture
def built_here(monkeypatch: pytest.MonkeyPatch) -> list[GraphKind]:
    """The kinds of the graphs that this process compiles."""
    found: list[GraphKind] = []
    build = driver._build

    def counted(request: driver.Request) -> Any:
        found.append(request.captured.kind)
        return build(request)

    monkeypatch.setattr(driver, "_build", counted)
    return found


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


def train(rows: int = 5, **options: Any) -> tuple[list[GraphRecord], Tensor, list[Tensor]]:
    """(records, loss, gradients) of one step on TVM, held against eager's."""
    net, reference = model(), model()
    x = torch.randn(rows, 6)
    with record_graphs() as records:
        loss = torch.compile(net, backend=relaxgrad, options=options or None)(x).square().sum()
        loss.backward()
    expected = reference(x).square().sum()
    expected.backward()
    gradients = [p.grad for p in net.parameters() if p.grad is not None]
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradients, [p.grad for p in reference.parameters()])
    assert all(bool(g.abs().max() > 0) for g in gradients)
    return records, loss, gradients


def test_the_child_compiles_and_this_process_trains(built_here: list[GraphKind]) -> None:
    records, _, _ = train()
    assert built_here == []
    assert [r.kind for r in records] == [GraphKind.FORWARD, GraphKind.BACKWARD]
    assert all(r.calls.get(Kind.LIBRARY) and not r.reasons and r.runs == 1 for r in records)
    assert all(r.seconds["compile"] > 0 and r.waited > 0 for r in records)


def test_here_and_apart_compute_the_same_bits(built_here: list[GraphKind]) -> None:
    _, loss, gradients = train()
    torch.compiler.reset()
    _, loss_here, gradients_here = train(compile_in="here")
    assert built_here == [GraphKind.FORWARD, GraphKind.BACKWARD]
    assert torch.equal(loss, loss_here)
    assert all(map(torch.equal, gradients, gradients_here))


def test_the_child_fills_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, built_here: list[GraphKind]
) -> None:
    monkeypatch.setenv("RELAXGRAD_CACHE", "1")
    monkeypatch.setenv("RELAXGRAD_CACHE_DIR", str(tmp_path / "cache"))
    first, _, _ = train()
    assert len(list((tmp_path / "cache" / "graphs").glob("*.so"))) == 2
    torch.compiler.reset()
    second, _, _ = train()
    assert [set(r.seconds) for r in first] == [{"translate", "compile"}] * 2
    assert ["cache" in r.seconds for r in second] == [True, True]
    assert built_here == []


def test_where_tvm_ends_the_child_the_graph_runs_in_aten(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(request: driver.Request) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)

    parent = os.getpid()
    monkeypatch.setattr(driver, "_build", lambda *a: crash(*a) if os.getpid() != parent else pytest.fail("not here"))
    records, _, _ = train()
    assert [set(r.calls) for r in records] == [{Kind.FALLBACK}] * 2
    assert all("killed by SIGSEGV" in r.reasons[0].detail for r in records)


def test_what_fails_in_the_child_is_compiled_here(monkeypatch: pytest.MonkeyPatch, built_here: list[GraphKind]) -> None:
    build, parent = driver._build, os.getpid()

    def fail(*arguments: Any) -> Any:
        if os.getpid() != parent:
            raise MemoryError
        return build(*arguments)

    monkeypatch.setattr(driver, "_build", fail)
    records, _, _ = train()
    assert built_here == [GraphKind.FORWARD, GraphKind.BACKWARD]
    assert not any(r.reasons for r in records)


def test_where_the_system_gives_no_process_the_graph_is_compiled_here(
    monkeypatch: pytest.MonkeyPatch, built_here: list[GraphKind]
) -> None:
    def full() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", full)
    ends = len(os.listdir("/proc/self/fd"))
    records, _, _ = train()
    assert built_here == [GraphKind.FORWARD, GraphKind.BACKWARD]
    assert not any(r.reasons for r in records)
    assert len(os.listdir("/proc/self/fd")) <= ends + 1  # no pipe is left


def test_a_child_that_waits_for_a_lock_is_given_up_and_no_other_is_made(
    monkeypatch: pytest.MonkeyPatch, built_here: list[GraphKind]
) -> None:
    build, parent = driver._build, os.getpid()
    lock = threading.Lock()
    lock.acquire()  # as by a thread that is not there in the fork

    def wait(*arguments: Any) -> Any:
        if os.getpid() != parent:
            lock.acquire()
        return build(*arguments)

    monkeypatch.setattr(driver, "_build", wait)
    monkeypatch.setattr(forked, "STUCK", 1.0)
    with pytest.warns(RuntimeWarning, match="relaxgrad compiles in this process from now on"):
        train()
    assert built_here == [GraphKind.FORWARD, GraphKind.BACKWARD]
    assert not worker.possible()


def test_symbolic_sizes_are_settled_while_dynamo_listens() -> None:
    """What translation asks of a size must become a guard; so nothing is left for the first call."""
    net = model()
    compiled = torch.compile(net, backend=relaxgrad, dynamic=True)
    with record_graphs() as records:
        compiled(torch.randn(5, 6))
        assert [r.kind for r in records] == [GraphKind.FORWARD, GraphKind.BACKWARD]  # which was not called
        assert all(r.symbolic for r in records)
        x = torch.randn(9, 6)
        torch.testing.assert_close(compiled(x), net(x))
    assert len(records) == 2


def test_a_graph_that_is_never_called_is_recorded_when_the_recording_ends() -> None:
    with record_graphs() as records:
        torch.compile(model(), backend=relaxgrad)(torch.randn(5, 6))
        assert [r.kind for r in records] == [GraphKind.FORWARD]
    assert [(r.kind, r.runs) for r in records] == [(GraphKind.FORWARD, 1), (GraphKind.BACKWARD, 0)]


def test_a_child_that_someone_kills_costs_its_graph_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_build", lambda *_: time.sleep(60))
    before = {p.pid for p in psutil.Process().children()}

    def kill_what_comes() -> None:
        while not (made := [p for p in psutil.Process().children() if p.pid not in before]):
            time.sleep(0.05)
        made[0].kill()

    killer = threading.Thread(target=kill_what_comes)
    killer.start()
    with record_graphs() as records:
        y = torch.compile(lambda x: x.sin() + 1, backend=relaxgrad)(torch.ones(3))
    killer.join()
    torch.testing.assert_close(y, torch.ones(3).sin() + 1)
    assert "killed by SIGKILL" in records[0].reasons[0].detail


def test_no_more_children_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "cores", lambda: 1)
    most = 0
    fork = worker.Fork

    def counted(function: Any) -> Any:
        nonlocal most
        made = fork(function)
        most = max(most, len([r for r in [*worker._at_work] if (f := r()) is not None and not f.ended()]) + 1)
        return made

    monkeypatch.setattr(worker, "Fork", counted)
    train()
    assert most == 1
