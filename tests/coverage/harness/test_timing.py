# SPDX-License-Identifier: Apache-2.0
"""The timing primitive: interleaved rounds, warm-up, medians."""

from __future__ import annotations

import pytest

from relaxgrad.coverage.harness.timing import Candidate, interleave, summarize


def test_candidates_are_interleaved_with_their_preparations_untimed() -> None:
    calls: list[str] = []

    def candidate(name: str) -> Candidate:
        return Candidate(
            lambda: calls.append(name) or name,  # type: ignore[func-returns-value]  # appends and returns the name
            lambda: calls.append(f"before {name}"),
            lambda result: calls.append(f"after {result}"),
        )

    rounds: list[int] = []
    timings = interleave({"a": candidate("a"), "b": candidate("b")}, 2, 0, rounds.append)
    one_round = ["before a", "a", "after a", "before b", "b", "after b"]
    assert calls == one_round * 2
    assert rounds == [0, 1]
    assert {name: t.rounds for name, t in timings.items()} == {"a": 2, "b": 2}


def test_summary_leaves_the_warm_up_out() -> None:
    timing = summarize([9.0, 5.0, 1.0, 2.0, 3.0, 4.0], warm_up=2)
    assert (timing.first, timing.median, timing.rounds) == (9.0, 2.5, 4)
    assert timing.spread == pytest.approx(2.5)


def test_summary_of_the_warm_up_alone_has_no_median() -> None:
    timing = summarize([9.0], warm_up=3)
    assert (timing.first, timing.median, timing.spread, timing.rounds) == (9.0, None, None, 0)


def test_no_rounds_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        interleave({}, 0, 0)
