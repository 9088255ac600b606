"""The worker's side of process.py: `python -m relaxgrad.coverage.worker`, request on stdin, events on a pipe."""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any

from relaxgrad.bridge.errors import UserError

from .process import State


def main() -> None:
    """Runs the one task of the request and writes its result as the last event."""
    request = json.loads(sys.stdin.buffer.read())
    sys.stdin = open(os.devnull)  # noqa: SIM115 - the user's code reads nothing, for the rest of the process
    with os.fdopen(request["events"], "w", encoding="utf-8", buffering=1) as events:

        def emit(event: dict[str, Any]) -> None:
            events.write(json.dumps(event) + "\n")

        emit({"event": "result", **_run(request, emit)})


def _run(request: dict[str, Any], emit: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"state": State.OK, "value": None, "message": "", "traceback": ""}
    try:
        import torch

        torch.set_num_threads(request["threads"])
        module, _, function = request["task"].partition(":")
        result["value"] = getattr(importlib.import_module(module), function)(request["arguments"], emit)
    except UserError as error:
        result |= {"state": State.USER_ERROR, "message": str(error), "traceback": traceback.format_exc()}
    except Exception as error:
        from .models import describe

        result |= {"state": State.ERROR, "message": describe(error), "traceback": traceback.format_exc()}
    return result


if __name__ == "__main__":
    main()
