"""The one process runner: a task in a worker process of its own, so that a crash or a hang costs that task alone.

A task is a function `task(arguments: dict, emit: Callable[[dict], None]) -> dict` of JSON-able values. It is named, not
passed: the worker (worker.py) imports it. Events reach the parent while the task runs; print of the user's
code goes to the worker's own output, which is kept for the error message.
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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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
) -> Outcome:
    """Runs `task` ("package.module:function") in a new process and waits for it, at most `timeout` seconds.

    `threads`: for torch, BLAS and TVM in the worker. `memory`: resident bytes of the worker and its children, looked at
    twice a second, past which they are killed. Never raises for what happens in the worker. The worker and its
    children are killed at the time limit and when this call is interrupted. POSIX only.
    """
    start = time.monotonic()
    read_end, write_end = os.pipe()
    request = {"task": task, "arguments": arguments, "threads": threads, "events": write_end}
    result: dict[str, Any] = {}
    timed_out = threading.Event()
    with tempfile.TemporaryFile("w+b") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "relaxgrad.coverage.worker"],  # -P: nothing in this folder shadows a module
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(write_end,),
            env=_environment(threads),
            start_new_session=True,
        )
        os.close(write_end)
        _running.add(process)

        def stop() -> None:
            timed_out.set()
            _kill(process)

        timer = threading.Timer(timeout, stop)
        timer.start()
        over = threading.Event()
        done = threading.Event()
        if memory is not None:
            threading.Thread(target=_guard, args=(process, memory, over, done), daemon=True).start()
        try:
            _send(process, request)
            with os.fdopen(read_end, "r", encoding="utf-8") as events:
                for line in events:
                    event = json.loads(line)
                    if event.get("event") == "result":
                        result = event
                        break  # a child that the user's code forked may hold the pipe open
                    elif on_event is not None:
                        on_event(event)
            process.wait()
        finally:
            timer.cancel()
            done.set()
            _kill(process)
            _running.discard(process)
        output.seek(0)
        printed = output.read().decode(errors="replace")[-8000:]
    seconds = time.monotonic() - start
    if result:
        state = State(result["state"])
        return Outcome(state, result["value"], result["message"], result["traceback"], printed, seconds)
    if over.is_set():
        message = f"the worker used more than {(memory or 0) / 2**30:.1f} GiB of memory"
        return Outcome(State.OUT_OF_MEMORY, None, message, "", printed, seconds)
    if timed_out.is_set():
        return Outcome(State.TIMEOUT, None, f"no result within {timeout:.0f} s", "", printed, seconds)
    return Outcome(State.CRASHED, None, _death(process.returncode, printed), "", printed, seconds)


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
            used = sum(p.memory_info().rss for p in (worker, *worker.children(recursive=True)))
        except psutil.Error:
            return
        if used > memory:
            over.set()
            _kill(process)
            return


_running: set[subprocess.Popen[bytes]] = set()


def stop_workers() -> None:
    """Kills the workers of every `run_task` in progress, in any thread; those calls return CRASHED."""
    for process in list(_running):
        _kill(process)


def _environment(threads: int) -> dict[str, str]:
    return dict(os.environ) | dict.fromkeys(STEADY_THREADS, str(threads)) | {"PYTHONFAULTHANDLER": "1"}


def _send(process: subprocess.Popen[bytes], request: dict[str, Any]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(request).encode())
        process.stdin.close()
    except BrokenPipeError:  # it died at start; its exit code and output say why
        return


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
        frame = re.search(r'\(most recent call first\):\s+File "(.+)", line (\d+) in (\S+)', printed)
        where = f" in {frame[3]} at {frame[1]}:{frame[2]}" if frame else ""
        return f"the worker process was killed by {how}{where}"
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return f"the worker process exited with code {code}" + (f": {lines[-1]}" if lines else "")
