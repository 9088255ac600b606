# SPDX-License-Identifier: Apache-2.0
"""The worker's side of a sweep: goes through its share of the calls in one long-lived process.

A sweep is a module with a subclass of BaseSweep called `Sweep`. The worker says `begin` before each sample and `record`
after it, so that the parent knows which one killed it. A watchdog ends the process when a sample takes too long, also
inside native code.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
import torch

from ..harness.models import describe
from ..harness.problem import seed_everything
from .call import Call
from .check import Checked, Status, check_call
from .records import finished_samples

#: Resident memory from which a worker asks to be replaced by a fresh one.
MEMORY_LIMIT = 3 << 30

SWEEPS = {
    "opinfo": "relaxgrad.coverage.sweeps.opinfo",
    "core-aten": "relaxgrad.coverage.sweeps.core_aten",
    "op-logs": "relaxgrad.coverage.sweeps.oplogs",
}


@dataclass(frozen=True)
class Sample:
    """One call of an entry. `facts` go into its record as they are."""

    call: Call
    facts: dict[str, Any] = field(default_factory=dict)


class BaseSweep(ABC):
    """What there is to check, and how."""

    def __init__(self, settings: dict[str, Any]):
        self.settings = settings

    @abstractmethod
    def entries(self) -> list[str]:
        """Names in the order in which they are checked."""

    @abstractmethod
    def samples(self, entry: str) -> dict[int, Callable[[], Sample]]:
        """By number, a function that makes the sample. May raise: the entry then counts as one eager cannot run."""

    def warm_up(self) -> None:
        """Loads what the first sample would otherwise wait for."""
        check_call(Call(torch.sin, (torch.ones(2).requires_grad_(),)))

    def check(self, call: Call) -> Checked:
        """The finding on one call."""
        return check_call(call, bool(self.settings.get("dynamic")))


def spread(count: int, limit: int | None) -> list[int]:
    """The numbers below `count`, or `limit` of them from the middles of equal parts: the first ones are often 0-d."""
    if limit is None or limit >= count:
        return list(range(count))
    return [(2 * k + 1) * count // (2 * limit) for k in range(limit)]


def load_sweep(name: str, settings: dict[str, Any]) -> BaseSweep:
    """The sweep called `name` (of SWEEPS, or a module). Raises UserError for settings that it cannot take."""
    sweep: BaseSweep = importlib.import_module(SWEEPS.get(name, name)).Sweep(settings)
    return sweep


def run_stripe(arguments: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Checks every sample whose number falls in the stripe and has no record yet; for the process runner.

    Arguments: sweep, settings, entries, stripe [j, n], results (path of the records so far), limit (seconds a sample).
    Returns {"finished": False} where memory ran past the limit before the end.
    """
    sweep = load_sweep(arguments["sweep"], arguments["settings"])
    done = finished_samples(arguments["results"])
    sweep.warm_up()
    process = psutil.Process(os.getpid())
    for ordinal, entry in enumerate(arguments["entries"]):
        for number, make in _stripe(sweep, entry, ordinal, arguments["stripe"]):
            if (entry, number) in done:
                continue
            emit({"event": "begin", "entry": entry, "sample": number})
            emit({"event": "record", "record": _check(sweep, entry, number, make, arguments["limit"])})
            if process.memory_info().rss > MEMORY_LIMIT:
                return {"finished": False}
        emit({"event": "entry", "entry": entry})
    return {"finished": True}


def _stripe(
    sweep: BaseSweep, entry: str, ordinal: int, stripe: tuple[int, int]
) -> Iterator[tuple[int, Callable[[], Sample] | Exception]]:
    """The samples of an entry that belong to stripe j of n: those whose number plus the entry's is j modulo n."""
    part, parts = stripe
    seed_everything(0)
    try:
        samples: dict[int, Any] = dict(sweep.samples(entry))
    except Exception as error:
        samples = {0: error}
    for number, sample in samples.items():
        if (ordinal + number) % parts == part:
            yield number, sample


def _check(
    sweep: BaseSweep, entry: str, number: int, make: Callable[[], Sample] | Exception, limit: float
) -> dict[str, Any]:
    start = time.perf_counter()
    faulthandler.dump_traceback_later(limit, exit=True)
    facts: dict[str, Any] = {}
    try:
        if isinstance(make, Exception):
            checked = Checked(Status.EAGER, f"no samples: {describe(make)}")
        else:
            seed_everything(number)
            sample = make()
            facts = sample.facts
            checked = sweep.check(sample.call)
    finally:
        faulthandler.cancel_dump_traceback_later()
    seconds = round(time.perf_counter() - start, 3)
    return {"entry": entry, "sample": number, **facts, **checked.to_json(), "seconds": seconds}
