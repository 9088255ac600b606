# SPDX-License-Identifier: Apache-2.0
"""A function in a fork of this process: what the process holds is there, and a crash or a hang costs nothing else.

POSIX only. The fork has the one thread that made it: the function must not wait for another, nor for a lock that
another may have held. One that does is found by the time it uses, which is none.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import psutil

#: Seconds without any processor time after which a fork counts as stuck.
STUCK = 30.0

_POLL = 0.5  # seconds between two looks at a fork that says nothing


class Fork:
    """`function` at work in a fork of this process; what it returns must be JSON-able.

    A fork without a waiting caller ends with the object. Raises OSError where the system makes no more processes.
    """

    def __init__(self, function: Callable[[], dict[str, Any]]):
        self._read_end, write_end = os.pipe()
        try:
            self.pid = os.fork()
        except OSError:  # no more processes, or no more memory
            os.close(self._read_end)
            os.close(write_end)
            raise
        if self.pid == 0:
            with contextlib.suppress(BaseException):
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
                os.close(self._read_end)
                with os.fdopen(write_end, "w") as pipe:
                    json.dump(function(), pipe)
            os._exit(0)  # nothing of the parent is closed, flushed or written a second time
        os.close(write_end)
        self._end = weakref.finalize(self, _end, self.pid, self._read_end, os.getpid())
        self._found: tuple[dict[str, Any] | None, str] | None = None
        self._lock = threading.Lock()  # one thread reads the pipe, and it is closed once

    def result(self, timeout: float | None = None) -> tuple[dict[str, Any] | None, str]:
        """(what the function returned; "") or (None, how its process ended): in `timeout` seconds, or killed.

        Without a timeout it may take as long as it works: one that is stuck is killed.
        """
        with self._lock:
            if self._found is None:
                text, why = self._read(timeout)
                if not why:  # it has closed the pipe, and is about to end
                    with contextlib.suppress(ChildProcessError):
                        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
                self._found = _outcome(text, why, self._end() or 0)
            return self._found

    def ended(self) -> bool:
        """Whether it has something to say, or nothing any more: `result` will not wait long."""
        if not self._lock.acquire(blocking=False):
            return False  # another thread waits for it
        try:
            return self._found is not None or _readable(self._read_end, 0)
        finally:
            self._lock.release()

    def _read(self, timeout: float | None) -> tuple[bytes, str]:
        """(what came, why it was not waited for any longer)."""
        text, start = b"", time.monotonic()
        used, moved = -1.0, start
        while True:
            now = time.monotonic()
            if timeout is not None and now - start >= timeout:
                return text, f"no result within {timeout:.0f} s"
            wait = _POLL if timeout is None else min(_POLL, timeout - (now - start))
            if _readable(self._read_end, wait):
                part = os.read(self._read_end, 1 << 16)
                if not part:
                    return text, ""
                text += part
            elif timeout is None:
                seconds = _busy_seconds(self.pid)
                if seconds != used:
                    used, moved = seconds, now
                elif now - moved > STUCK:
                    return text, f"stuck: no CPU time in {STUCK:.0f} s"


def in_fork(function: Callable[[], dict[str, Any]], timeout: float) -> tuple[dict[str, Any] | None, str]:
    """`Fork(function).result(timeout)`."""
    return Fork(function).result(timeout)


def _readable(end: int, seconds: float) -> bool:
    """Whether there is something to read, or nothing any more. (`select` takes no descriptor from 1024 on.)"""
    poll = select.poll()
    poll.register(end, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _end(pid: int, read_end: int, parent: int) -> int:
    """Ends a fork, if it has not ended, and returns its status; 0 where others took it."""
    os.close(read_end)
    if os.getpid() != parent:  # another fork, which has this object too
        return 0
    with contextlib.suppress(ChildProcessError, ProcessLookupError):
        done, status = os.waitpid(pid, os.WNOHANG)
        if not done:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
        return status
    return 0


def _outcome(text: bytes, why: str, status: int) -> tuple[dict[str, Any] | None, str]:
    with contextlib.suppress(ValueError):
        found: dict[str, Any] = json.loads(text)
        return found, ""
    if why:
        return None, why
    code = os.waitstatus_to_exitcode(status)
    return None, f"killed by {signal.Signals(-code).name}" if code < 0 else "no result"


def _busy_seconds(pid: int) -> float:
    """Processor time of a process and of those that it waited for; 0 of one that has ended."""
    with contextlib.suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        return sum((times.user, times.system, times.children_user, times.children_system))
    return 0.0


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
