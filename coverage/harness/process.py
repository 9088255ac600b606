# SPDX-License-Identifier: Apache-2.0
"""The one process runner: a task in a worker process of its own, so that a crash or a hang costs that task alone.

A task is a function `task(arguments: dict, emit: Callable[[dict], None]) -> dict` of JSON-able values. It is named, not
passed: the worker (worker.py) imports it. Events reach the parent while the task runs; print of the user's
code goes to the worker's own output, which is kept for the error message. `run_task` and `run_tasks` run a task to its
end; a `Worker` stays and answers commands.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

#: For a worker that has answered to end.
LAST_SECONDS = 10.0
STEADY_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS")


class State(StrEnum):
    """How a task ended."""

    OK = "ok"
    USER_ERROR = "user error"  # UserError: the user's input is wrong
    ERROR = "error"  # any other exception
    CRASHED = "crashed"  # the process died
    TIMEOUT = "timed out"
    OUT_OF_MEMORY = "out of memory"  # past the limit that was given


@dataclass(frozen=True)
class Outcome:
    """What became of one task."""

    state: State
    value: dict[str, Any] | None = None  # what the task returned, for OK
    message: str = ""  # one line, for all but OK
    traceback: str = ""  # of the worker, for USER_ERROR and ERROR
    output: str = ""  # the end of what the worker printed
    seconds: float = 0.0


def run_task(
    task: str,
    arguments: dict[str, Any],
    timeout: float,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    threads: int = 1,
    memory: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Runs `task` ("package.module:function") in a new process and waits for it, at most `timeout` seconds.

    `threads`: for torch, BLAS and TVM in the worker. `memory`: resident bytes of the worker and its children, looked at
    twice a second, past which they are killed. `environment`: variables of the worker beside this one's. Never raises
    for what happens in the worker. The worker and its children are killed at the time limit, when this call is
    interrupted, and when this process is killed. POSIX only.
    """
    process = _Process({"task": task, "arguments": arguments, "session": False}, threads, environment, memory)
    try:
        process.end_of_commands()
        return process.result(timeout, on_event, last=True)
    finally:
        process.end()


class Worker:
    """A worker that waits for commands: what several workers do in turn, each with a state of its own.

    `session` ("package.module:function") names a function `session(arguments, emit) -> answer`, and
    `answer(command: dict) -> dict` is called for each command; all values are JSON-able. Between commands the worker
    is blocked on a pipe. `opened` says how `session` itself ended. Like `run_task`, it raises for nothing that happens
    in the worker: once that died, or was killed at a time limit, every further `call` returns how it ended. A context
    manager, whose end kills the worker and its children.
    """

    def __init__(
        self,
        session: str,
        arguments: dict[str, Any],
        timeout: float,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        threads: int = 1,
        environment: Mapping[str, str] | None = None,
    ):
        request = {"task": session, "arguments": arguments, "session": True}
        self._process = _Process(request, threads, environment)
        self._ended: Outcome | None = None
        try:
            self.opened = self._kept(self._process.result(timeout, on_event))
        except BaseException:
            self.close()
            raise
        if self.opened.state is not State.OK:  # no worker can answer
            self._ended = self.opened

    def call(
        self, command: dict[str, Any], timeout: float, on_event: Callable[[dict[str, Any]], None] | None = None
    ) -> Outcome:
        """Sends one command and waits for the answer, at most `timeout` seconds; then the worker is killed."""
        if self._ended is not None:
            return self._ended
        self._process.send(command)
        return self._kept(self._process.result(timeout, on_event))

    def close(self) -> None:
        """Kills the worker and its children."""
        self._process.end()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _kept(self, outcome: Outcome) -> Outcome:
        if outcome.state in (State.CRASHED, State.TIMEOUT, State.OUT_OF_MEMORY):
            self._ended = outcome
        return outcome


class _Process:
    """A worker process: requests and commands go in as lines of JSON, events and results come out as such."""

    def __init__(
        self,
        request: dict[str, Any],
        threads: int,
        environment: Mapping[str, str] | None = None,
        memory: int | None = None,
    ):
        self._start = time.monotonic()
        self._memory = memory
        self._over, self._done = threading.Event(), threading.Event()
        self._output = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed in end()
        read_end, write_end = os.pipe()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "relaxgrad.coverage.harness.worker",
            ],  # -P: no file here shadows a module
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            pass_fds=(write_end,),
            env=_environment(threads) | dict(environment or {}),
            start_new_session=True,
        )
        _running.add(self._process)
        os.close(write_end)
        self._events = os.fdopen(read_end, "r", encoding="utf-8")
        if memory is not None:
            guard = threading.Thread(target=_guard, args=(self._process, memory, self._over, self._done), daemon=True)
            guard.start()
        self.send(request | {"threads": threads, "events": write_end})

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:  # it died; its exit code and output say why
            return

    def end_of_commands(self) -> None:
        """No command follows the request."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def result(self, timeout: float, on_event: Callable[[dict[str, Any]], None] | None, last: bool = False) -> Outcome:
        """Passes events on until the result of the request or command is there, or the process ends.

        `last`: the process ends after this result, and its end is waited for.
        """
        start = self._start if last else time.monotonic()
        timed_out = threading.Event()

        def stop() -> None:
            timed_out.set()
            _kill(self._process)

        timer = threading.Timer(timeout, stop)
        timer.start()
        result: dict[str, Any] = {}
        try:
            while (line := self._events.readline()).endswith("\n"):
                event = json.loads(line)
                if event.get("event") == "result":
                    result = event
                    break  # a child that the user's code forked may hold the pipe open
                elif on_event is not None:
                    on_event(event)
            if not result:
                self._process.wait()
            elif last:  # it may hang on its way out, in what the user's code registered or left running
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(LAST_SECONDS)
        finally:
            timer.cancel()
            if last or not result:
                _kill(self._process)
        seconds = time.monotonic() - start
        printed = self._printed()
        if result:
            state = State(result["state"])
            return Outcome(state, result["value"], result["message"], result["traceback"], printed, seconds)
        if self._over.is_set():
            message = f"the worker used more than {(self._memory or 0) / 2**30:.1f} GiB of memory"
            return Outcome(State.OUT_OF_MEMORY, None, message, "", printed, seconds)
        if timed_out.is_set():
            return Outcome(State.TIMEOUT, None, f"no result within {timeout:.0f} s", "", printed, seconds)
        return Outcome(State.CRASHED, None, _death(self._process.returncode, printed), "", printed, seconds)

    def end(self) -> None:
        """Kills what is left of the process and its children. May be called twice."""
        self._done.set()
        _kill(self._process)
        _running.discard(self._process)
        self.end_of_commands()
        self._events.close()
        self._output.close()

    def _printed(self) -> str:
        """The end of what the worker printed. The file's position is shared with the worker: it is left alone."""
        handle = self._output.fileno()
        size = os.fstat(handle).st_size
        return os.pread(handle, 8000, max(size - 8000, 0)).decode(errors="replace")


def run_tasks(
    task: str,
    arguments: Sequence[dict[str, Any]],
    timeout: float,
    jobs: int = 1,
    on_event: Callable[[int, dict[str, Any]], None] | None = None,
    on_done: Callable[[int, Outcome], None] | None = None,
    threads: int = 1,
) -> list[Outcome]:
    """`run_task` for each of `arguments`, `jobs` at a time; outcomes in order. Callbacks get the index first.

    When this call is interrupted, the running workers are killed and the waiting ones do not start.
    """
    interrupted = threading.Event()

    def one(index: int) -> Outcome:
        if interrupted.is_set():
            return Outcome(State.CRASHED, message="interrupted before it started")
        listen = None if on_event is None else functools.partial(on_event, index)
        outcome = run_task(task, arguments[index], timeout, listen, threads)
        if on_done is not None and not interrupted.is_set():
            on_done(index, outcome)
        return outcome

    if jobs == 1:  # in this thread, which gets the KeyboardInterrupt
        return [one(index) for index in range(len(arguments))]
    with ThreadPoolExecutor(jobs) as pool:
        try:
            return list(pool.map(one, range(len(arguments))))
        except BaseException:
            interrupted.set()
            stop_workers()
            raise


def _guard(process: subprocess.Popen[bytes], memory: int, over: threading.Event, done: threading.Event) -> None:
    """Kills a worker whose resident memory, its children's included, is past the limit."""
    import psutil

    while not done.wait(0.5):
        try:
            worker = psutil.Process(process.pid)
            used = sum(_memory_of(p) for p in (worker, *worker.children(recursive=True)))
        except psutil.NoSuchProcess:  # the worker itself
            return
        if used > memory:
            over.set()
            _kill(process)
            return


def _memory_of(process: Any) -> int:
    """Resident bytes of a process, of which those that it shares count in parts: its forks have most of it too."""
    import psutil

    with contextlib.suppress(psutil.Error):
        found = process.memory_full_info()
        return int(getattr(found, "pss", found.rss))
    return 0  # it has ended, or is not ours to look at


_running: set[subprocess.Popen[bytes]] = set()


def stop_workers() -> None:
    """Kills the workers of every `run_task` in progress, in any thread; those calls return CRASHED."""
    for process in list(_running):
        _kill(process)


def _environment(threads: int) -> dict[str, str]:
    """The environment of a worker: steady threads, and no compiled graphs from the disk unless they are asked for, for
    it reports what compiling takes."""
    own = {"PYTHONFAULTHANDLER": "1", "RELAXGRAD_CACHE": os.environ.get("RELAXGRAD_CACHE", "0")}
    return dict(os.environ) | dict.fromkeys(STEADY_THREADS, str(threads)) | own


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends the worker's whole process group; a worker that is gone already may have left children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _death(code: int, printed: str) -> str:
    """How a worker without a result ended, with the innermost Python line where Python's fault handler wrote one."""
    if code < 0:
        try:
            how = signal.Signals(-code).name
        except ValueError:
            how = f"signal {-code}"
        frame = re.search(r'Current thread.+\(most recent call first\):\s+File "(.+)", line (\d+) in (\S+)', printed)
        where = f" in {frame[3]} at {frame[1]}:{frame[2]}" if frame else ""
        return f"the worker process was killed by {how}{where}"
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return f"the worker process exited with code {code}" + (f": {lines[-1]}" if lines else "")
