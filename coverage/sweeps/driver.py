# SPDX-License-Identifier: Apache-2.0
"""Runs a sweep in worker processes: a crash or a hang costs one sample, an interrupt costs none that is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from relaxgrad.bridge.errors import RelaxgradError

from ..harness.process import Outcome, State, run_task, stop_workers
from .records import Records

TASK = "relaxgrad.coverage.sweeps.worker:run_stripe"
NO_LIMIT = 30 * 86400.0  # seconds for a whole worker: the limit that counts is the sample's


@dataclass(frozen=True)
class Plan:
    """One sweep to run. Filled by the command."""

    sweep: str  # key of worker.SWEEPS
    entries: list[str]
    settings: dict[str, Any] = field(default_factory=dict)
    shard: tuple[int, int] = (0, 1)  # this run's part and the number of parts
    limit: float = 120.0  # seconds for one sample

    def head(self) -> dict[str, Any]:
        """The first line of the records."""
        return {"sweep": self.sweep, "settings": self.settings, "entries": self.entries, "shard": self.shard}


Listen = Callable[[dict[str, Any]], None]


def run_sweep(plan: Plan, records: Records, jobs: int = 1, listen: Listen | None = None) -> None:
    """Checks every sample of the plan that has no record yet, in `jobs` workers, and adds its record.

    `listen` gets the workers' events: {"event": "begin" | "record" | "entry", ...}; from several threads when jobs > 1.
    Raises RelaxgradError where a worker cannot start at all. An interrupt kills the workers and is passed on.
    """
    part, parts = plan.shard
    stripes = [(part + parts * job, parts * jobs) for job in range(jobs)]
    interrupted = threading.Event()

    def one(stripe: tuple[int, int]) -> None:
        _run_stripe(plan, stripe, records, listen or (lambda event: None), interrupted)

    if jobs == 1:  # in this thread, which gets the KeyboardInterrupt
        one(stripes[0])
        return
    with ThreadPoolExecutor(jobs) as pool:
        try:
            futures = [pool.submit(one, stripe) for stripe in stripes]
            wait(futures, return_when="FIRST_EXCEPTION")
            for future in futures:
                if future.done():
                    future.result()
        except BaseException:
            interrupted.set()
            stop_workers()
            raise


def _run_stripe(
    plan: Plan, stripe: tuple[int, int], records: Records, listen: Listen, interrupted: threading.Event
) -> None:
    """One worker after another until the stripe is done."""
    arguments = {
        "sweep": plan.sweep,
        "settings": plan.settings,
        "entries": plan.entries,
        "stripe": stripe,
        "results": str(records.path),
        "limit": plan.limit,
    }
    while not interrupted.is_set():
        begun: dict[str, Any] | None = None

        def on_event(event: dict[str, Any]) -> None:
            nonlocal begun
            if event["event"] == "begin":
                begun = event
            elif event["event"] == "record":
                begun = None
                records.add(event["record"])
            listen(event)

        outcome = run_task(TASK, arguments, NO_LIMIT, on_event)
        if interrupted.is_set():
            return
        if outcome.state is State.OK:
            assert outcome.value is not None
            if outcome.value["finished"]:
                return
            continue
        if begun is None:
            raise RelaxgradError(f"a worker of the {plan.sweep} sweep failed: {outcome.message}\n{outcome.traceback}")
        record = _death(plan, begun, outcome)
        records.add(record)
        listen({"event": "record", "record": record})


def _death(plan: Plan, begun: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
    """The record of the sample that ended its worker."""
    record = {"entry": begun["entry"], "sample": begun["sample"]}
    if outcome.state is State.CRASHED and "Timeout (" in outcome.output:  # written by the watchdog
        return record | {"status": "timeout", "detail": f"no result within {plan.limit:.0f} s"}
    if outcome.state is State.CRASHED:
        return record | {"status": "crash", "detail": outcome.message}
    return record | {"status": "error", "detail": outcome.message}
