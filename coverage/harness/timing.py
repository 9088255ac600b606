# SPDX-License-Identifier: Apache-2.0
"""The one timing primitive: candidates in interleaved rounds (A B A B ...), so that a slow moment hits all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Candidate:
    """One of several ways to do the same work."""

    run: Callable[[], Any]  # the timed part
    before: Callable[[], None] | None = None  # untimed, as restoring a random state
    after: Callable[[Any], None] | None = None  # untimed, gets what `run` returned


@dataclass(frozen=True)
class Timing:
    """Wall times of one candidate, in seconds."""

    first: float  # the first round, with whatever is compiled in it
    median: float | None  # over the rounds after warm-up; None when there were none
    spread: float | None  # interquartile range over the same rounds; None below 4 rounds
    rounds: int  # after warm-up

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def summarize(seconds: list[float], warm_up: int) -> Timing:
    """`seconds`: every round in order (at least one), the first `warm_up` of which are left out of the median."""
    measured = seconds[warm_up:]
    spread = None
    if len(measured) >= 4:
        low, _, high = statistics.quantiles(measured, n=4)
        spread = high - low
    return Timing(seconds[0], statistics.median(measured) if measured else None, spread, len(measured))


def interleave(
    candidates: Mapping[str, Candidate],
    rounds: int,
    warm_up: int,
    on_round: Callable[[int], None] | None = None,
) -> dict[str, Timing]:
    """Runs each candidate once a round, in order, and returns its Timing.

    `rounds` counts the warm-up rounds too (at least 1); `on_round(i)` is called after round i, from 0. An exception
    of a candidate ends the run.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for index in range(rounds):
        for name, candidate in candidates.items():
            if candidate.before is not None:
                candidate.before()
            start = time.perf_counter()
            result = candidate.run()
            seconds[name].append(time.perf_counter() - start)
            if candidate.after is not None:
                candidate.after(result)
        if on_round is not None:
            on_round(index)
    return {name: summarize(values, warm_up) for name, values in seconds.items()}
