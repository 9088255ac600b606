# SPDX-License-Identifier: Apache-2.0
"""A run against a stored one: the band, what falls out of it, and files that say nothing about this machine."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from relaxgrad.benchmarks.check import FLOOR, band_of, changes, check_comparable, read_run
from relaxgrad.benchmarks.machine import differences, this_machine
from relaxgrad.benchmarks.names import DYNAMIC
from relaxgrad.benchmarks.record import SCHEMA, Settings
from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.harness.records import write_json
from tests.benchmarks.records import model

MACHINE = {
    "cpu": "A CPU", "cores": 2, "features": ["avx2"], "memory": 16, "kernel": "6.1", "torch": "2.13.0", "tvm": "0.27.0",
}  # fmt: skip
SETTINGS = Settings().to_json()


def stored(**changed: Any) -> dict[str, Any]:
    return {"schema": SCHEMA, "command": "bench", "machine": MACHINE, "settings": SETTINGS, "models": []} | changed


def ratio(median: float, spread: float | None) -> dict[str, Any]:
    return {"median": median, "spread": spread}


def test_the_band_comes_from_both_spreads() -> None:
    assert band_of(ratio(2.0, 0.06), ratio(1.0, 0.04)) == pytest.approx(0.05)
    assert band_of(ratio(2.0, 0.001), ratio(1.0, 0.001)) == FLOOR
    assert band_of(ratio(2.0, None), ratio(1.0, None)) == FLOOR


def test_a_ratio_that_falls_past_the_band_is_found() -> None:
    then = [model(eager=2.0, spread=0.04)]
    (same,) = changes([model(eager=1.98, spread=0.04)], then)
    assert not same.fell
    assert not same.rose
    (fell,) = changes([model(eager=1.8, spread=0.04)], then)
    assert fell.fell
    assert "2.000 then, 1.800 now" in str(fell)
    assert str(fell).endswith("fell")
    (wide,) = changes([model(eager=1.8, spread=0.2)], then)  # the same fall within the noise of this run
    assert not wide.fell
    (rose,) = changes([model(eager=2.5, spread=0.04)], then)
    assert rose.rose
    assert not rose.fell


def test_symbolic_kernels_that_cost_less_are_no_fall() -> None:
    def dynamic(cost: float) -> dict[str, Any]:
        found = model(eager=cost)
        found["ratios"] = {DYNAMIC: found["ratios"]["eager"]}
        found["candidates"][DYNAMIC] = found["candidates"]["eager"]
        return found

    (better,) = changes([dynamic(1.02)], [dynamic(1.2)])
    assert better.passed
    assert str(better).endswith("better")
    (worse,) = changes([dynamic(1.2)], [dynamic(1.02)])
    assert not worse.passed
    assert str(worse).endswith("worse")


def test_a_run_that_is_too_noisy_to_say_does_not_pass() -> None:
    (change,) = changes([model(eager=2.0, spread=0.5)], [model(eager=2.0)])
    assert change.undecided
    assert not change.passed
    assert str(change).endswith("too noisy to say, repeat on a quiet machine")
    (change,) = changes([model()], [model()])
    assert change.passed


def test_raw_times_do_not_matter() -> None:
    slower = model()
    for candidate in slower["candidates"].values():
        if candidate["step"]:
            candidate["step"]["median"] *= 3
    assert not any(change.fell for change in changes([slower], [model()]))


def test_a_candidate_that_is_not_timed_any_more_is_a_fall() -> None:
    now = model()
    now["ratios"] = {}
    now["candidates"]["relaxgrad"] |= {"status": "wrong", "reason": "gradients: w is off"}
    (change,) = changes([now], [model()])
    assert change.fell
    assert "not measured now: gradients: w is off" in str(change)


def test_a_candidate_that_takes_no_part_is_left_out_and_a_model_that_fails_is_not() -> None:
    now = model()
    now["ratios"] = {}
    del now["candidates"]["eager"]
    assert changes([now], [model()]) == []
    failed = model() | {"ratios": {}, "candidates": {}, "reason": "no result within 9 s"}
    (change,) = changes([failed], [model()])
    assert change.fell
    assert change.reason == "no result within 9 s"


def test_the_mean_of_many_falls_where_no_single_one_does() -> None:
    names = [f"model-{i}" for i in range(16)]
    then = [model(name, 2.0, 0.1) for name in names]
    found = changes([model(name, 1.9, 0.1) for name in names], then)
    assert [c.model for c in found if c.fell] == ["all"]
    assert found[-1].band < found[0].band


def test_models_and_mallocs_that_were_not_measured_again_are_left_out() -> None:
    found = changes([model("b")], [model("a"), model("b"), model("b", malloc="tuned")])
    assert [(c.model, c.malloc) for c in found] == [("b", "system")]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"cpu": "Another"}, "cpu A CPU, there Another"),
        ({"cores": 64}, "cores 2, there 64"),
        ({"features": ["avx2", "avx512f"]}, "no avx512f"),
        ({"torch": "2.14.0"}, "torch 2.13.0, there 2.14.0"),
    ],
)
def test_another_machine_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        check_comparable(Path("run.json"), stored(machine=MACHINE | changed), MACHINE, SETTINGS)
    assert "another machine" in str(raised.value)


def test_another_protocol_is_refused_and_the_same_is_not() -> None:
    check_comparable(Path("run.json"), stored(), copy.deepcopy(MACHINE), SETTINGS)
    with pytest.raises(UserError, match="threads 2, there 1"):
        check_comparable(Path("run.json"), stored(), MACHINE, SETTINGS | {"threads": 2})


def test_this_machine_is_itself_after_a_round_trip(tmp_path: Path) -> None:
    now = this_machine().to_json()
    write_json(tmp_path / "machine.json", now)
    assert differences(now, json.loads((tmp_path / "machine.json").read_text())) == []
    assert now["cores"] >= 1
    assert now["cpu"]
    assert now["memory"] >= 1


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json(path, stored(models=[model()]))
    assert read_run(path)["models"] == json.loads(json.dumps([model()]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is no benchmark"),
        ('{"command": "train"}', "is no benchmark"),
        ('{"command": "bench", "schema": 99}', "has schema 99"),
    ],
)
def test_a_file_that_is_no_run_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_run(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        read_run(tmp_path / "none.json")
