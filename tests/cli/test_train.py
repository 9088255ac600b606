# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad train`: names, errors, exit codes, the table and the JSON file; and one small run on TVM."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relaxgrad.cli.main import main
from relaxgrad.coverage.harness import process
from relaxgrad.coverage.harness.process import Outcome, State
from relaxgrad.coverage.harness.timing import Timing
from relaxgrad.coverage.harness.train_record import Status, TrainRecord, Validation

FILE = """\
import os
import torch
from torch import nn

class Broken(nn.Linear):
    def forward(self, x):
        return super().forward(x).view(7)

def broken():
    return Broken(3, 3), torch.randn(2, 3)

def nonsense():
    return len("what only a run tells")

def crash():
    os.abort()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def trained(model: str, **fields: Any) -> dict[str, Any]:
    graph = {
        "kind": "forward",
        "index": 0,
        "calls": {"native": 3, "library": 1},
        "ops": {},
        "reasons": [],
        "symbolic": False,
        "kernels": 2,
        "seconds": {"compile": 0.5},
        "runs": 20,
        "copies": 0,
    }
    record = TrainRecord(model, Status.TRAINED, steps=20, target="llvm", threads=1, parameters=1234)
    record.graphs = {"forward": 1, "backward": 1, "inference": 0}
    record.graph_details = [graph, graph | {"kind": "backward"}]
    record.calls = {"native": 6, "library": 2, "fallback": 0, "metadata": 4, "unsupported": 0}
    worst = {"name": "w", "verdict": "pass", "error": 1e-7, "eager_error": 1e-7, "allowed": 1e-6, "detail": ""}
    record.gradients = Validation(2, worst=worst, worst_ratio=0.1)
    record.losses_eager = record.losses_compiled = [2.0, 1.25]
    record.loss_difference = 1e-7
    record.time_eager = record.time_compiled = Timing(3.5, 0.0125, 0.001, 17)
    for key, value in fields.items():
        setattr(record, key, value)
    return record.to_json()


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Outcome]:
    """Stands in for the workers: what each model's worker ends with."""
    table: dict[str, Outcome] = {}

    def run_tasks(task: str, arguments: list[dict[str, Any]], *rest: Any) -> list[Outcome]:
        found = []
        for a in arguments:
            found.append(table.get(a["model"]) or Outcome(State.OK, trained(a["model"])))
        return found

    monkeypatch.setattr(process, "run_tasks", run_tasks)
    return table


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["train", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "name a model, or --all"),
        (("gtp2",), "unknown model 'gtp2'; did you mean gpt2 or"),
        (("mlp", "nowhere/x.py:f"), "no file nowhere/x.py"),
        (("mlp", "--target", "abacus"), "target 'abacus' is unknown"),
        (("mlp", "--fallback", "maybe"), "--fallback is aten or error, not 'maybe'"),
        (("mlp", "--json", "no/such/folder/out.json"), "there is no folder no/such/folder"),
        (("mlp", "--steps", "0"), "--steps"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(run: Run, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert says in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("broken", "the module raised RuntimeError: shape '[7]' is invalid"),
        ("nonsense", "the factory returned a value of type int; return (module, inputs)"),
    ],
)
def test_a_users_error_in_the_worker_is_the_same_line(run: Run, file: Path, function: str, says: str) -> None:
    code, out, err = run(f"{file}:{function}")
    assert code == 2
    assert out == ""
    assert says in err
    assert len([line for line in err.splitlines() if line.startswith("relaxgrad: ")]) == 1
    assert "Traceback" not in err


def test_debug_shows_the_workers_traceback(run: Run, file: Path) -> None:
    code, _, err = run(f"{file}:broken", "--debug")
    assert code == 2
    assert "mine.py" in err
    assert "Traceback" in err
    assert "return super().forward(x).view(7)" in err


def test_a_crash_costs_one_row(run: Run, file: Path, outcomes: dict[str, Outcome], tmp_path: Path) -> None:
    crash = process.run_task("relaxgrad.coverage.harness.training:train_task", arguments(f"{file}:crash"), 60.0)
    outcomes[f"{file}:crash"] = crash
    code, out, _ = run("mlp", f"{file}:crash", "gpt2", "--json", str(tmp_path / "out.json"))
    assert code == 1
    assert "killed by SIGABRT in crash at" in out
    models = json.loads((tmp_path / "out.json").read_text())["models"]
    assert [m["status"] for m in models] == ["trained", "failed", "trained"]


def arguments(model: str) -> dict[str, Any]:
    return {"model": model, "steps": 2, "seed": 0, "target": "llvm", "fallback": "aten"}


def test_all_and_repeated_names_and_the_table(
    run: Run, outcomes: dict[str, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")  # narrower than the table
    path = tmp_path / "out.json"
    code, out, _ = run("mlp", "--all", "--json", str(path))
    assert code == 0
    models = json.loads(path.read_text())["models"]
    assert len(models) == 15
    assert [m["model"] for m in models].count("mlp") == 1
    rows = [line for line in out.splitlines() if "trained" in line]
    assert len(rows) == 15
    assert "…" not in out
    row = rows[0].split()
    assert row[:4] == ["seed-example", "trained", "1,234", "1+1+0"]
    assert row[-3:] == ["12.50", "12.50", "3.5"]


def test_a_narrow_terminal_gets_two_tables(
    run: Run, outcomes: dict[str, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes this for a terminal
    _, out, _ = run("mlp", "gru")
    assert out.count("model") == 2
    assert "…" not in out


def test_one_that_falls_short_is_exit_code_1_with_its_reason(run: Run, outcomes: dict[str, Outcome]) -> None:
    outcomes["mlp"] = Outcome(State.OK, trained("mlp", status=Status.WRONG, reason="gradient of w: all zero"))
    outcomes["gru"] = Outcome(State.TIMEOUT, message="no result within 900 s")
    code, out, _ = run("mlp", "gru", "lstm")
    assert code == 1
    assert "mlp: wrong: gradient of w: all zero" in out
    assert "gru: failed: no result within 900 s" in out


def test_a_users_error_among_others_is_exit_code_2_after_the_table(run: Run, outcomes: dict[str, Outcome]) -> None:
    outcomes["gru"] = Outcome(State.USER_ERROR, message="gru: bad", traceback="Traceback ...")
    code, out, err = run("mlp", "gru")
    assert code == 2
    assert "gru: failed: bad" in out
    assert err.splitlines()[-1] == "relaxgrad: gru: bad"


def test_one_model_lists_its_graphs(run: Run, outcomes: dict[str, Outcome]) -> None:
    code, out, _ = run("mlp")
    assert code == 0
    assert "2 graphs:" in out
    assert "forward: compiled by TVM in 0.50 s, 2 kernels (ops: 3 native, 1 library), run 20 times" in out
    assert "gradients of the first step: 2 of 2 right by float64; worst w" in out


def test_the_seed_example_trains_on_tvm_in_two_graphs(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    code, out, _ = run("seed-example", "--steps", "3", "--json", str(path))
    assert code == 0, out
    assert "2 graphs:" in out
    assert "  forward: compiled by TVM" in out
    assert "  backward: compiled by TVM" in out
    record = json.loads(path.read_text())["models"][0]
    assert record["status"] == "trained"
    assert record["calls"]["fallback"] == 0
    assert record["gradients"]["compared"] == 2


@pytest.mark.slow
def test_every_core_model_of_the_zoo_trains_on_tvm_without_a_fallback(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    code, out, _ = run("--all", "--json", str(path))
    assert code == 0, out
    records = json.loads(path.read_text())["models"]
    assert {r["model"]: r["calls"]["fallback"] for r in records} == dict.fromkeys((r["model"] for r in records), 0)
    assert {r["model"]: sum(r["graph_breaks"].values()) for r in records if r["graph_breaks"]} == {}
