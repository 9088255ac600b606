"""A function in a fork of this process: what it holds is there, and a crash or a hang costs nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any


def in_fork(function: Callable[[], dict[str, Any]], timeout: float) -> tuple[dict[str, Any] | None, str]:
    """(what `function` returned, JSON-able; "") or (None, how its process ended): in `timeout` seconds, or killed.

    POSIX only. For a process with one thread that runs Python: others would not be there in the fork.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(read_end)
            with os.fdopen(write_end, "w") as pipe:
                json.dump(function(), pipe)
        os._exit(0)  # nothing of the parent is closed, flushed or written a second time
    os.close(write_end)
    text, end = b"", time.monotonic() + timeout
    try:
        while select.select([read_end], [], [], max(0.0, end - time.monotonic()))[0]:
            if not (part := os.read(read_end, 1 << 16)):
                break
            text += part
        else:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(read_end)
        _, status = os.waitpid(child, 0)
    with contextlib.suppress(ValueError):
        found: dict[str, Any] = json.loads(text)
        return found, ""
    if time.monotonic() >= end:
        return None, f"no result within {timeout:.0f} s"
    code = os.waitstatus_to_exitcode(status)
    return None, f"killed by {signal.Signals(-code).name}" if code < 0 else "no result"
