# SPDX-License-Identifier: Apache-2.0
"""The worker's side of process.py: `python -m relaxgrad.coverage.harness.worker`, JSON lines on stdin, events on a
pipe.

The first line is the request. A session then answers one command a line until the pipe is closed.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

from relaxgrad.bridge.errors import UserError

from .process import State


def main() -> None:
    """Runs the one task of the request, or opens its session and answers commands; each result is an event."""
    commands = _take_stdin()
    request = json.loads(commands.readline())
    threading.Thread(target=_end_with_parent, args=(request["events"],), daemon=True).start()
    with os.fdopen(request["events"], "w", encoding="utf-8", buffering=1) as events:

        def emit(event: dict[str, Any]) -> None:
            events.write(json.dumps(event) + "\n")

        opened = _guarded(lambda: _start(request, emit))
        if not request["session"]:
            emit({"event": "result", **opened})
            return
        answer = opened["value"]
        emit({"event": "result", **opened, "value": None})
        for line in commands:
            command = json.loads(line)
            emit({"event": "result", **_guarded(lambda: answer(command))})  # noqa: B023 - called at once


def _end_with_parent(events: int) -> None:
    """Ends this process where the parent was killed and could not: no process would read the result.

    A pipe's write end has an error, and nothing else to be asked for, once the other end is closed.
    """
    waiting = select.poll()
    waiting.register(events, 0)
    waiting.poll()
    os.killpg(os.getpid(), signal.SIGKILL)  # its children too: a worker leads a session of its own


def _take_stdin() -> BinaryIO:
    """The pipe from the parent. The user's code, and what it starts, read nothing in its place."""
    pipe = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return pipe


def _start(request: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> Any:
    module, _, function = request["task"].partition(":")
    gc.disable()  # modules leave no garbage, and collections that find none take a quarter of the time of importing
    try:
        import torch

        task = getattr(importlib.import_module(module), function)
    finally:
        gc.enable()
    torch.set_num_threads(request["threads"])
    return task(request["arguments"], emit)


def _leave() -> None:
    """Ends the process after what was registered for its end. Taking torch's and TVM's modules apart one by one, which
    an interpreter does on its way out, takes more than a second and serves nothing."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def _guarded(run: Callable[[], Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"state": State.OK, "value": None, "message": "", "traceback": ""}
    try:
        result["value"] = run()
    except UserError as error:
        result |= {"state": State.USER_ERROR, "message": str(error), "traceback": traceback.format_exc()}
    except Exception as error:
        from .models import describe

        result |= {"state": State.ERROR, "message": describe(error), "traceback": traceback.format_exc()}
    return result


if __name__ == "__main__":
    main()
    _leave()
