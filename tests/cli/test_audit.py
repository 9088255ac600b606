# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad audit`: what it writes and returns, and one line for each way to call it wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relaxgrad.cli.main import main
from relaxgrad.coverage.sweeps.driver import Plan
from relaxgrad.coverage.sweeps.records import Records, read_records

PASS = {"status": "pass", "graphs": 2, "calls": {"native": 1}, "outputs": {"out": "verified"}, "seconds": 0.1}
WRONG = PASS | {"status": "wrong", "detail": "out: error too large", "outputs": {"out": "wrong"}}


def planted(monkeypatch: pytest.MonkeyPatch, records: list[dict[str, Any]], interrupt: bool = False) -> list[Plan]:
    """Sweeps that find `records` (after those that are there already), and the plans that they were given."""
    plans: list[Plan] = []

    def run_sweep(plan: Plan, file: Records, jobs: int = 1, listen: Any = None) -> None:
        plans.append(plan)
        for record in records:
            listen({"event": "begin", "entry": record["entry"], "sample": record["sample"]})
            file.add(record)
            listen({"event": "record", "record": record})
        if interrupt:
            raise KeyboardInterrupt
        listen({"event": "entry", "entry": "x"})

    monkeypatch.setattr("relaxgrad.coverage.sweeps.driver.run_sweep", run_sweep)
    return plans


def test_a_real_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["audit", "--core-aten", "--op", "tanh", "--op", "bmm.default", "--samples", "1", "-o", str(tmp_path)]
    assert main(options) == 0
    out = capsys.readouterr().out
    assert "2 samples of 2 of 2 entries: 2 pass." in out
    summary = json.loads((tmp_path / "core-aten.json").read_text())
    assert summary["entries"]["aten.tanh.default"]["kinds"] == {"native": 1}
    assert summary["entries"]["aten.bmm.default"]["kinds"]["library"] >= 1
    assert summary["entries"]["aten.bmm.default"]["backward"] == 1
    assert summary["versions"]["torch"]
    assert "| aten.tanh.default | 1 | 1 |" in (tmp_path / "core-aten.md").read_text()
    assert len((tmp_path / "core-aten.jsonl").read_text().splitlines()) == 3
    assert main(options) == 2
    assert "go on with --resume" in capsys.readouterr().err
    assert main([*options, "--resume"]) == 0
    assert len((tmp_path / "core-aten.jsonl").read_text().splitlines()) == 3


def test_an_entry_can_be_checked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["audit", "--opinfo", "--op", "mul", "--op", "div", "-o", str(tmp_path)]
    planted(
        monkeypatch, [{"entry": "mul", "sample": 3, **WRONG}, {"entry": "div.no_rounding_mode", "sample": 0, **PASS}]
    )
    assert main(options) == 1
    planted(monkeypatch, [{"entry": "mul", "sample": 3, **PASS}])
    assert main([*options, "--resume", "--again", "mul"]) == 0
    _, records = read_records(tmp_path / "opinfo-float32.jsonl")
    assert [(r["entry"], r["status"]) for r in records] == [("div.no_rounding_mode", "pass"), ("mul", "pass")]
    assert main([*options, "--resume", "--again", "mull"]) == 2
    assert "no op 'mull'; close: mul" in capsys.readouterr().err
    assert main([*options, "--again", "mul"]) == 2
    assert "need --resume" in capsys.readouterr().err


def test_what_fell_short_can_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["audit", "--opinfo", "--op", "mul", "-o", str(tmp_path)]
    eager = PASS | {"status": "eager"}
    planted(monkeypatch, [{"entry": "mul", "sample": n, **r} for n, r in enumerate((PASS, WRONG, eager))])
    assert main(options) == 1
    planted(monkeypatch, [{"entry": "mul", "sample": 1, **PASS}])
    assert main([*options, "--resume", "--retry"]) == 0
    _, records = read_records(tmp_path / "opinfo-float32.jsonl")
    assert [(r["sample"], r["status"]) for r in records] == [(0, "pass"), (1, "pass")]


def test_a_sample_that_fails_is_named_and_the_exit_code_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = planted(monkeypatch, [{"entry": "mul", "sample": 3, **PASS}, {"entry": "mul", "sample": 4, **WRONG}])
    assert main(["audit", "--opinfo", "--op", "mul", "--samples", "all", "--dtype", "bfloat16", "--shard", "2/3"]) == 1
    out, err = capsys.readouterr()
    assert "mul sample 4: wrong: out: error too large" in out
    assert "mul sample 4: wrong" in err
    assert "own importer" not in out  # it was measured in float32
    (plan,) = plans
    assert (plan.sweep, plan.entries, plan.shard) == ("opinfo", ["mul"], (1, 3))
    assert plan.settings == {"dtype": "bfloat16", "samples": None, "dynamic": False}


def test_the_table_of_expected_failures_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from relaxgrad.coverage.sweeps import expected_failures

    table = tmp_path / "table.tsv"
    table.write_text("opinfo/float32\tmul\t4\tknown\n")
    monkeypatch.setattr(expected_failures.read_table, "__defaults__", (table,))
    planted(monkeypatch, [{"entry": "mul", "sample": 4, **WRONG}])
    assert main(["audit", "--opinfo", "--op", "mul"]) == 0
    planted(monkeypatch, [{"entry": "mul", "sample": 4, **PASS}])
    assert main(["audit", "--opinfo", "--op", "mul"]) == 1
    assert "mul sample 4 passes: take it out of expected_failures.tsv" in capsys.readouterr().out


def test_an_interrupt_still_writes_the_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    planted(monkeypatch, [{"entry": "mul", "sample": 0, **PASS}], interrupt=True)
    assert main(["audit", "--opinfo", "--op", "mul", "--dynamic", "-o", str(tmp_path)]) == 130
    assert "1 samples of 1 of 1 entries: 1 pass." in capsys.readouterr().out
    assert json.loads((tmp_path / "opinfo-float32-dynamic.json").read_text())["samples"] == {"pass": 1}


def test_a_log_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("Operator: aten.sum.SymInt\ncnt: 3, ((T([4, 5], f32), [1]), {})\n")
    plans = planted(monkeypatch, [{"entry": "aten.sum.dim_IntList", "sample": 0, "count": 3, **PASS}])
    assert main(["audit", "--op-logs", str(log), "-o", str(tmp_path / "out")]) == 0
    assert plans[0].entries == ["aten.sum.dim_IntList"]
    assert plans[0].settings["file"] == str(log)
    assert json.loads((tmp_path / "out" / "op-logs.json").read_text())["recorded_calls"]["calls"] == 3


def test_fuzz(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found: dict[str, Any] = {"seed": 4, "graphs": 7, "used": {"sum": 9}, "failures": []}
    asked: list[Any] = []

    def run_fuzz(*arguments: Any) -> dict[str, Any]:
        asked.append(arguments[:3])
        arguments[3]({"graphs": 7, "failures": 0})
        return found

    monkeypatch.setattr("relaxgrad.coverage.sweeps.fuzz.run_fuzz", run_fuzz)
    options = ["audit", "--fuzz", "7", "--seed", "4", "--time-limit", "9", "-o", str(tmp_path)]
    assert main(options) == 0
    assert asked == [(7, 4, 9.0)]
    assert "7 random graphs of 1 kinds of line, seed 4: 0 failures." in capsys.readouterr().out
    found["failures"] = [{"detail": "wrong: out", "script": "import torch"}]
    assert main(options) == 1
    assert "wrong: out\n\nimport torch" in capsys.readouterr().out
    assert (tmp_path / "fuzz-4-1.py").read_text() == "import torch"
    assert json.loads((tmp_path / "fuzz-4.json").read_text())["failures"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "--core-aten, --opinfo, --op-logs FILE"),
        (["--opinfo", "--samples", "0"], "--samples is a number from 1, or all, not '0'"),
        (["--opinfo", "--samples", "few"], "--samples is a number"),
        (["--opinfo", "--shard", "3/2"], "--shard is I/N with I from 1 to N"),
        (["--opinfo", "--dtype", "float8"], "--dtype float8 is unknown; use one of float32"),
        (["--opinfo", "--op", "sofmax"], "has no entry 'sofmax'; close: "),
        (["--core-aten", "--op", "sofmax"], "this sweep has no op 'sofmax'"),
        (["--op-logs", "/no/such/log"], "cannot read /no/such/log"),
        (["--opinfo", "--resume"], "name it with -o DIR"),
        (["--core-aten", "-o", "/proc/none"], "cannot make the folder /proc/none"),
        (["--jobs", "0", "--opinfo"], "Invalid value for '--jobs'"),
    ],
)
def test_a_wrong_call_gets_one_line(options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert complaint in err
    assert len(err.strip().splitlines()) == 1
