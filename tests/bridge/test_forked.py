# SPDX-License-Identifier: Apache-2.0
"""Functions in forks: what they return, and how a fork that ends otherwise is told."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from typing import Any

import psutil
import pytest

from relaxgrad.bridge import forked
from relaxgrad.bridge.forked import Fork, in_fork


def test_what_it_returns_comes_back_whole() -> None:
    held = list(range(50_000))
    assert in_fork(lambda: {"all": held, "pid": os.getpid()}, 30.0)[0]["all"] == held  # type: ignore[index]  # it is there


def test_a_fork_changes_nothing_here() -> None:
    values = [1]

    def change() -> dict[str, Any]:
        values.append(2)
        return {"pid": os.getpid()}

    found, ended = in_fork(change, 30.0)
    assert found is not None
    assert found["pid"] != os.getpid()
    assert (values, ended) == ([1], "")


def test_a_crash_has_the_name_of_its_signal() -> None:
    assert in_fork(lambda: os.kill(os.getpid(), signal.SIGSEGV) or {}, 30.0) == (None, "killed by SIGSEGV")


def test_an_exception_is_no_result() -> None:
    assert in_fork(lambda: {"": 1 / 0}, 30.0) == (None, "no result")


def test_a_timeout_kills_it() -> None:
    fork = Fork(lambda: time.sleep(60) or {})
    assert fork.result(0.5) == (None, "no result within 0 s")
    assert not psutil.pid_exists(fork.pid)
    assert fork.result() == (None, "no result within 0 s")  # asked again, the same


def test_without_a_timeout_one_that_works_is_waited_for_and_one_that_is_stuck_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forked, "STUCK", 1.5)

    def works() -> dict[str, Any]:
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            pass
        return {"done": True}

    lock = threading.Lock()
    lock.acquire()  # as by a thread that is not there in the fork
    assert Fork(works).result() == ({"done": True}, "")
    assert Fork(lambda: lock.acquire() or {}).result() == (None, "stuck: no CPU time in 2 s")


def test_it_ends_with_its_object() -> None:
    fork = Fork(lambda: time.sleep(60) or {})
    pid = fork.pid
    assert not fork.ended()
    del fork
    gc.collect()
    assert not psutil.pid_exists(pid)
