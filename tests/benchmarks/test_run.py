# SPDX-License-Identifier: Apache-2.0
"""The order of a benchmark: right first, one at a time, in interleaved rounds; whatever goes wrong is a row."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relaxgrad.benchmarks.record import ModelRecord, Settings, Status
from relaxgrad.benchmarks.run import Sessions, bench_model, protocol_in_words

SESSIONS = Sessions("tests.benchmarks.standins:reference", "tests.benchmarks.standins:candidate")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("LOG_OF_THE_TEST", str(tmp_path / "log"))
    return tmp_path / "log"


def bench(*against: str, model: str = "a-model", start_up: bool = False, **settings: object) -> ModelRecord:
    chosen = Settings(against, **{"rounds": 4, "warm_up": 2} | settings)  # type: ignore[arg-type]
    return bench_model(model, chosen, 60.0, start_up=start_up, sessions=SESSIONS)


def test_candidates_run_one_at_a_time_in_rounds(log: Path) -> None:
    record = bench("eager", "slow")
    lines = log.read_text().splitlines()
    rounds = [line for line in lines if " round " in line]
    names = ("relaxgrad", "eager", "slow")
    assert rounds == [f"{name} round {what}" for name in names for what in ("begins", "ends")] * 6
    assert lines.index("slow first ends") < lines.index("relaxgrad round begins")
    steps = {name: found.step for name, found in record.candidates.items()}
    assert all(step is not None and len(step.rounds) == 4 for step in steps.values())
    assert record.parameters == 12
    assert record.ratios["eager"].median == pytest.approx(2.0)
    assert record.ratios["slow"].of_medians == pytest.approx(4.0)
    own = steps["relaxgrad"]
    assert own is not None
    assert own.median == pytest.approx(0.010 * 1.045)  # rounds 3 to 6: the warm-up is left out
    assert own.steps == 2  # 0.05 s in steps of the slowest, 0.04 s
    assert own.page_faults == 7
    assert record.candidates["eager"].memory == 5000


def test_what_is_wrong_or_fails_is_a_row_and_never_timed(log: Path) -> None:
    record = bench("wrong", "refuses", "aborts", "eager")
    assert record.candidates["wrong"].status is Status.WRONG
    assert record.candidates["wrong"].reason == "gradients: w: error too large"
    assert record.candidates["wrong"].cold is not None
    assert record.candidates["wrong"].step is None
    assert record.candidates["refuses"].status is Status.FAILED
    assert record.candidates["refuses"].reason == "RuntimeError: no kernel for this"
    lines = log.read_text().splitlines()
    assert not [line for line in lines if line.startswith(("wrong round", "refuses round"))]
    assert record.candidates["relaxgrad"].status is Status.TIMED
    assert record.candidates["aborts"].status is Status.FAILED
    assert "round 2: the worker process was killed by SIGABRT" in record.candidates["aborts"].reason
    assert list(record.ratios) == ["eager"]


def test_what_eager_itself_moves_as_far_is_timed_and_says_so(log: Path) -> None:
    found = bench("kink", "wrong").candidates
    assert found["kink"].status is Status.TIMED
    assert found["kink"].step is not None
    assert found["kink"].conditioning == "what eager does beside kink"
    assert found["kink"].validation["gradients"].failed
    assert not found["wrong"].conditioning


def test_inductor_is_validated_with_eagers_random_numbers_and_timed_with_its_own(log: Path) -> None:
    record = bench("inductor", start_up=True)
    found = record.candidates["inductor"]
    assert found.status is Status.TIMED
    assert found.own_random
    assert found.validation["gradients"].failed == []
    assert (found.cold and found.cold.first, found.warm and found.warm.first) == (4.0, 0.5)
    assert found.warm_memory == 5000
    own = record.candidates["relaxgrad"]
    assert not own.own_random
    assert own.warm is not None
    caches = [
        line.partition("cache ")[2] for line in log.read_text().splitlines() if line.startswith("relaxgrad malloc")
    ]
    assert caches == ["False", "True", "True"]  # off, filled, warm


def test_tuned_malloc_reaches_every_candidate(log: Path) -> None:
    bench("eager", malloc="tuned", dynamic=True, rounds=1, warm_up=1)
    told = [line for line in log.read_text().splitlines() if " malloc " in line]
    assert len(told) == 4
    assert not [line for line in told if "malloc system" in line]


def test_an_interrupt_kills_every_worker(log: Path) -> None:
    def say(text: str) -> None:
        if text.startswith("round 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench_model("a-model", Settings(("eager",)), 60.0, start_up=False, say=say, sessions=SESSIONS)
    pids = [line.rpartition(" ")[2] for line in log.read_text().splitlines() if " pid " in line]
    assert len(pids) == 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_model_that_is_wrong_itself(log: Path) -> None:
    record = bench("eager", model="bad-model")
    assert (record.reason, record.user_error, record.candidates) == ("the factory raised", True, {})
    assert not log.exists()


def test_the_protocol_says_what_is_in_a_step() -> None:
    assert "AdamW" in protocol_in_words(Settings(protocol="step", threads=2, malloc="tuned"))
    words = protocol_in_words(Settings())
    assert "AdamW" not in words
    assert "15 interleaved rounds after 3 of warm-up; 1 thread; malloc system" in words
