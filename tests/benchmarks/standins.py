# SPDX-License-Identifier: Apache-2.0
"""Sessions that stand in for the reference and for candidates: no model, given times, and a log of who ran when."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relaxgrad.bridge.errors import UserError

Answer = Callable[[dict[str, Any]], dict[str, Any]]

#: Seconds of a step by candidate.
STEPS = {"relaxgrad": 0.010, "eager": 0.020, "slow": 0.040}


def _validation(failed: list[str]) -> dict[str, Any]:
    return {"compared": 2, "failed": failed, "missing": [], "worst": None, "worst_ratio": 0.5}


def reference(arguments: dict[str, Any], emit: Any) -> Answer:
    """Every first step is right but for that of `wrong`, that of `kink`, where eager is no steadier, and that of
    `inductor` with random numbers of its own."""
    if arguments["model"] == "bad-model":
        raise UserError("bad-model: the factory raised")
    Path(arguments["start"]).write_text("")

    def answer(command: dict[str, Any]) -> dict[str, Any]:
        if command["do"] == "parameters":
            return {"parameters": 12, "inputs": ["x 2x3"]}
        name = Path(command["values"]).read_text()
        if command["do"] == "conditioning":
            return {"ill_conditioned": name == "kink", "told": f"what eager does beside {command['candidate']}"}
        wrong = ["w: error too large"] if name in ("wrong", "inductor", "kink") else []
        return {"loss": _validation([]), "gradients": _validation(wrong)}

    return answer


def candidate(arguments: dict[str, Any], emit: Any) -> Answer:
    """Logs the beginning and end of each command. `refuses` does not compile, `aborts` dies in its second round."""
    name = arguments["candidate"]
    rounds = 0

    def note(what: str) -> None:
        with open(os.environ["LOG_OF_THE_TEST"], "a") as log:
            log.write(f"{name} {what}\n")

    note(f"pid {os.getpid()}")

    def answer(command: dict[str, Any]) -> dict[str, Any]:
        nonlocal rounds
        note(f"{command['do']} begins")
        try:
            if command["do"] == "first":
                if name == "refuses":
                    return {"error": "RuntimeError: no kernel for this"}
                own = "" if arguments["draw_as_eager"] else name
                Path(command["values"]).write_text(own if name == "inductor" else name)
                cached = os.environ["RELAXGRAD_CACHE"] == "1"
                note(f"malloc {os.environ.get('MALLOC_TOP_PAD_', 'system')}, cache {cached}")
                return {"loading": 1.0, "first": 0.5 if cached else 4.0, "backend": 0.2, "memory": 1000}
            if command["do"] == "round":
                rounds += 1
                if name == "aborts" and rounds == 2:
                    os.abort()
                time.sleep(0.01)  # so that an overlap would show
                seconds = STEPS.get(name, 0.02) * (1 + 0.01 * rounds)
                steps = command["steps"]
                return {"seconds": [seconds] * steps, "cpu": seconds * steps, "page_faults": 7 * steps}
            if command["do"] == "profile":
                return {"share_of_limit": 0.9}
            return {
                "memory": 5000,
                "graphs": 1,
                "recompiles": 0,
                "graph_breaks": {},
                "optimizer": "",
                "calls": {},
                "fallbacks": [],
                "symbolic": "dynamic" in name,
            }
        finally:
            note(f"{command['do']} ends")

    return answer
