# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad bench`: names, errors, exit codes, what is written and when; the measuring is in tests/benchmarks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relaxgrad.benchmarks import run
from relaxgrad.benchmarks.record import CandidateRecord, ModelRecord, Settings, Status, ratio_of, step_of
from relaxgrad.cli.bench import estimate
from relaxgrad.cli.main import main
from relaxgrad.coverage.zoo import select

Seen = list[tuple[str, Settings, bool]]


def measured(model: str, settings: Settings, eager: float = 2.0) -> ModelRecord:
    record = ModelRecord(model, settings.malloc, parameters=5, protocol="forward", seconds=60.0)
    for name, seconds in {"relaxgrad": 0.01, "eager": 0.01 * eager}.items():
        record.candidates[name] = CandidateRecord(name, Status.TIMED)
        record.candidates[name].step = step_of([{"seconds": [seconds], "cpu": seconds, "page_faults": 0}] * 4)
    own, other = (record.candidates[name].step for name in ("relaxgrad", "eager"))
    assert own is not None
    assert other is not None
    record.ratios = {"eager": ratio_of(other, own)}
    return record


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What is measured, in place of measuring it: each model is twice as fast as eager."""
    calls: Seen = []
    replace(monkeypatch, calls, measured)
    return calls


def replace(monkeypatch: pytest.MonkeyPatch, calls: Seen, measure: Callable[[str, Settings], ModelRecord]) -> None:
    def bench_model(model: str, settings: Settings, time_limit: float, start_up: bool, **_: Any) -> ModelRecord:
        calls.append((model, settings, start_up))
        return measure(model, settings)

    monkeypatch.setattr(run, "bench_model", bench_model)


def test_models_options_and_output(seen: Seen, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, drawing = tmp_path / "run.json", tmp_path / "run.svg"
    arguments = [
        "bench",
        "mlp",
        "gpt2",
        "--against",
        "eager",
        "--threads",
        "2",
        "--protocol",
        "step",
        "--malloc",
        "both",
    ]
    assert main([*arguments, "--json", str(path), "--plot", str(drawing)]) == 0
    assert [(model, s.malloc, start_up) for model, s, start_up in seen] == [
        ("mlp", "system", True), ("mlp", "tuned", False), ("gpt2", "system", True), ("gpt2", "tuned", False),
    ]  # fmt: skip
    settings = seen[0][1]
    assert (settings.against, settings.threads, settings.protocol, settings.rounds) == (("eager",), 2, "step", 15)
    stored = json.loads(path.read_text())
    assert (stored["schema"], stored["command"], stored["settings"]["malloc"]) == (2, "bench", "both")
    assert [record["model"] for record in stored["models"]] == ["mlp", "mlp", "gpt2", "gpt2"]
    assert stored["machine"]["cores"] >= 1
    assert b"<svg" in drawing.read_bytes()
    out, err = capsys.readouterr()
    assert "2.000 ±0 (2.000)" in out
    assert "mlp, malloc system: relaxgrad 10.00 ms, eager 20.00 ms (60 s, about 3 min left)" in err


def test_the_zoo_by_group(seen: Seen) -> None:
    assert main(["bench", "--zoo", "perf", "--no-warm"]) == 0
    assert [model for model, *_ in seen] == select("perf")
    assert not any(start_up for *_, start_up in seen)
    assert seen[0][1].against == ("inductor", "eager")


def test_a_check_measures_the_stored_models_and_fails_where_one_fell(
    seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    assert main(["bench", "mlp", "--against", "eager", "--threads", "3", "--json", str(path)]) == 0
    seen.clear()
    assert main(["bench", "--check", str(path)]) == 0
    assert [(model, s.threads, s.against) for model, s, _ in seen] == [("mlp", 3, ("eager",))]
    replace(monkeypatch, seen, lambda model, settings: measured(model, settings, eager=1.8))
    assert main(["bench", "--check", str(path)]) == 1
    assert "mlp against eager, malloc system: 2.000 then, 1.800 now, band 2.0%: fell" in capsys.readouterr().out
    assert main(["bench", "mlp", "--check", str(path), "--threads", "1"]) == 2
    stored = json.loads(path.read_text())
    stored["machine"]["cpu"] = "Another"
    path.write_text(json.dumps(stored))
    seen.clear()
    assert main(["bench", "--check", str(path)]) == 2
    assert "is of another machine" in capsys.readouterr().err
    assert seen == []


def test_an_interrupt_keeps_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: Seen = []

    def measure(model: str, settings: Settings) -> ModelRecord:
        if model == "gpt2":
            raise KeyboardInterrupt
        return measured(model, settings)

    replace(monkeypatch, calls, measure)
    path = tmp_path / "run.json"
    assert main(["bench", "mlp", "gpt2", "--json", str(path)]) == 130
    assert [record["model"] for record in json.loads(path.read_text())["models"]] == ["mlp"]
    assert "| mlp " in capsys.readouterr().out


def test_exit_codes_of_what_falls_short(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(model: str, settings: Settings) -> ModelRecord:
        record = measured(model, settings)
        record.candidates["relaxgrad"] = CandidateRecord("relaxgrad", Status.WRONG, "gradients: w is off")
        record.ratios = {}
        return record

    replace(monkeypatch, [], wrong)
    assert main(["bench", "mlp"]) == 1
    assert "relaxgrad: wrong: gradients: w is off" in capsys.readouterr().out
    replace(monkeypatch, [], lambda m, s: ModelRecord(m, s.malloc, reason="raised", user_error=True))
    assert main(["bench", "mlp", "--malloc", "both"]) == 2
    assert capsys.readouterr().err.strip().endswith("relaxgrad: mlp: raised")
    replace(monkeypatch, [], lambda m, s: ModelRecord(m, s.malloc, reason="no result within 9 s"))
    assert main(["bench", "mlp"]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a model"),
        (["no-such-model"], "unknown model"),
        (["mlp", "--protocol", "forward"], "--protocol is fwd_bwd or step"),
        (["mlp", "--malloc", "jemalloc"], "--malloc is system, tuned or both"),
        (["mlp", "--against", "relaxgrad"], "takes part in any case"),
        (["mlp", "--plot", "run.pdf"], "ends in .svg or .png"),
        (["mlp", "--json", "no/such/folder.json"], "there is no folder"),
        (["--check", "none.json"], "cannot read none.json"),
        (["--zoo", "pref"], "no part of the zoo"),
    ],
)
def test_what_can_be_told_wrong_is_told_before_measuring(
    seen: Seen, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert seen == []


def test_the_estimate_knows_both_kinds_of_run() -> None:
    assert estimate([], {True: [10.0], False: []}) == ""
    assert estimate([True, True], {True: [10.0, 20.0], False: []}) == ", about 30 s left"
    assert estimate([True, False], {True: [100.0], False: [20.0]}) == ", about 2 min left"
    assert estimate([False], {True: [30.0], False: []}) == ", about 30 s left"
