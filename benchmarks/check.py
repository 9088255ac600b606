# SPDX-License-Identifier: Apache-2.0
"""A run held against a stored one: ratios, never raw times, within a band that the spreads of both runs give.

Note [The noise band]
A ratio r is the median over the rounds of (the baseline's step) / (relaxgrad's step), q its interquartile range over
the same rounds, so s = q / r is how far single rounds stray. Two runs of the same code differ by about that at worst:
the medians by less, what changes from process to process (where memory lies, which pages are huge) by more. So

    band = max(FLOOR, sqrt(s_now^2 + s_then^2))

and a ratio fell where r_now < r_then * (1 - band). For the geometric mean of n ratios the bands are taken as
independent: band = max(FLOOR / sqrt(n), sqrt(sum of band_i^2) / n). A candidate that was timed in the stored run and
is not now is a failure too, and so is a band wider than WIDEST: such a run says nothing, and a check that cannot fail
is no check. What got faster is told and fails nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relaxgrad.bridge.errors import UserError

from .machine import differences
from .names import SYMBOLIC
from .record import SCHEMA, geometric_mean

FLOOR = 0.02  # of a band: two runs of a quiet machine differ by as much where single rounds hardly do
WIDEST = 0.25  # of a band that still says something


@dataclass(frozen=True)
class Change:
    """One ratio then and now."""

    model: str  # "all" for the geometric mean
    malloc: str
    against: str
    then: float
    now: float | None  # None: it could not be measured now
    band: float  # relative
    reason: str = ""  # where now is None

    @property
    def gain(self) -> float:
        """How many times as good as then: of symbolic kernels over static ones, whose ratio is a cost, the inverse."""
        assert self.now is not None
        return self.then / self.now if self.against in SYMBOLIC else self.now / self.then

    @property
    def fell(self) -> bool:
        return self.now is None or self.gain < 1 - self.band

    @property
    def undecided(self) -> bool:
        return self.now is not None and self.band > WIDEST

    @property
    def passed(self) -> bool:
        return not (self.fell or self.undecided)

    @property
    def rose(self) -> bool:
        return self.now is not None and self.gain > 1 + self.band

    def __str__(self) -> str:
        what = f"{self.model} against {self.against}, malloc {self.malloc}"
        if self.now is None:
            return f"{what}: {self.then:.3f} then, not measured now: {self.reason}"
        words = ("worse", "better") if self.against in SYMBOLIC else ("fell", "rose")
        how = words[0] if self.fell else words[1] if self.rose else "same"
        how = "too noisy to say, repeat on a quiet machine" if self.undecided else how
        return f"{what}: {self.then:.3f} then, {self.now:.3f} now, band {self.band:.1%}: {how}"


def read_run(path: Path) -> dict[str, Any]:
    """A stored run. Raises UserError for a file that is none, or of another schema."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}; give a file that `relaxgrad bench --json` wrote") from error
    if not isinstance(found, dict) or found.get("command") != "bench":
        raise UserError(f"{path} is no benchmark; give a file that `relaxgrad bench --json` wrote")
    if found.get("schema") != SCHEMA:
        raise UserError(f"{path} has schema {found.get('schema')}, this release writes {SCHEMA}; measure anew")
    return found


def check_comparable(
    path: Path, stored: Mapping[str, Any], machine: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    """Raises UserError where the stored run is of another machine, or measured something else."""
    if found := differences(dict(machine), stored["machine"]):
        raise UserError(f"{path} is of another machine, and its ratios say nothing about this one: {'; '.join(found)}")
    then = stored["settings"]
    different = [
        f"{key} {settings[key]}, there {then.get(key)}"
        for key in ("threads", "protocol")
        if settings[key] != then.get(key)
    ]
    if different:
        raise UserError(f"{path} was measured otherwise: {'; '.join(different)}; give the same options")


def changes(now: Iterable[Mapping[str, Any]], then: Iterable[Mapping[str, Any]]) -> list[Change]:
    """Every ratio of the stored models that were measured again, then the geometric mean for each candidate.

    Both are model records as JSON. Candidates that did not take part this time are left out.
    """
    measured = {(record["model"], record["malloc"]): record for record in now}
    found: list[Change] = []
    for record in then:
        again = measured.get((record["model"], record["malloc"]))
        if again is not None:
            raced = record["ratios"] if again["reason"] else again["candidates"]
            found += [_change(record, again, against) for against in record["ratios"] if against in raced]
    return found + _means(found)


def _change(then: Mapping[str, Any], now: Mapping[str, Any], against: str) -> Change:
    old, new = then["ratios"][against], now["ratios"].get(against)
    if new is None:
        candidates = now["candidates"]
        rows = [candidates[name] for name in ("relaxgrad", against) if name in candidates]
        reason = next((row["reason"] for row in rows if row["reason"]), now["reason"])
        return Change(then["model"], then["malloc"], against, old["median"], None, band_of(old, old), reason)
    return Change(then["model"], then["malloc"], against, old["median"], new["median"], band_of(old, new))


def band_of(then: Mapping[str, Any], now: Mapping[str, Any]) -> float:
    """See Note [The noise band]; of two ratios as JSON. A spread that is not known (few rounds) counts as zero."""
    return max(FLOOR, math.hypot(*((ratio["spread"] or 0.0) / ratio["median"] for ratio in (then, now))))


def _means(found: Sequence[Change]) -> list[Change]:
    means = []
    for malloc, against in dict.fromkeys((c.malloc, c.against) for c in found):
        both = [c for c in found if (c.malloc, c.against) == (malloc, against) and c.now is not None]
        if len(both) > 1:
            then, now = geometric_mean([c.then for c in both]), geometric_mean([c.now for c in both if c.now])
            assert then is not None
            band = max(FLOOR / math.sqrt(len(both)), math.hypot(*(c.band for c in both)) / len(both))
            means.append(Change("all", malloc, against, then, now, band))
    return means
