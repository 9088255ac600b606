# SPDX-License-Identifier: Apache-2.0
"""The planted-fault study: faults are found in a small model, what changes nothing is none, a compiler is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from relaxgrad.coverage.harness.process import Outcome, State
from relaxgrad.coverage.trial import legitimate, planted, run


def test_every_kind_of_fault_finds_its_ops_and_is_caught() -> None:
    rows = planted.try_faults("transformer-encoder", 1, 2) + planted.try_faults("cnn-bn", 1, 2)
    kinds = {row["kind"] for row in rows}
    assert kinds >= {kind.name for kind in planted.KINDS if "GELU" not in kind.name} | {planted.MISSING}
    unseen = [row for row in rows if row["as_eager"]]
    assert unseen == []
    assert sum(not row["right"] for row in rows) >= 0.9 * len(rows)
    assert not any(row["excused"] for row in rows)


def test_a_fault_that_leaves_every_number_as_it_was_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    addmm = frozenset({torch.ops.aten.addmm.default})
    same = planted.Kind("nothing", addmm, lambda op, args, kwargs: op(*args, **kwargs))
    monkeypatch.setattr(planted, "KINDS", (same,))
    assert {row["kind"] for row in planted.try_faults("mlp", 1, 2)} == {planted.MISSING}


def test_a_fault_shows_in_float64_too_unless_it_is_rounding() -> None:
    from relaxgrad.coverage.zoo import ZOO

    traced = planted.Traced()
    problem = ZOO["mlp"].build(1)
    torch.compiler.reset()
    torch.compile(problem.step_function(), backend=traced.backend())(*problem.args, **problem.kwargs).backward()
    node = next(n for n in traced.graphs[0].graph.nodes if n.target is torch.ops.aten.addmm.default)

    def hides(run: Any) -> bool:
        kind = planted.Kind("one", frozenset({node.target}), run)
        return planted._hides_in_float64(lambda: ZOO["mlp"].build(1), 1, 0, node.name, kind)

    assert not hides(lambda op, args, kwargs: op(*args, **kwargs) * (1 + 1e-7))
    assert hides(lambda op, args, kwargs: op(*args, **kwargs) * (1 + 1e-14))


def test_right_compilers_and_eagers_variants_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legitimate, "COMPILERS", ("aot_eager", "relaxgrad", "no such backend"))
    rows = legitimate.try_legitimate("mlp", 2)
    ran = [row for row in rows if row["run"] != "no such backend"]
    assert {"without oneDNN", "inputs moved down by one ulp", "aot_eager", "relaxgrad"} <= {row["run"] for row in ran}
    assert all(row["right"] for row in ran)
    assert list(legitimate.failures(ran)) == []
    (last,) = [row for row in rows if row["run"] == "no such backend"]
    assert last["right"] is None
    assert "no such backend" in last["told"]


def test_a_trial_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trial.json"
    path.write_text(json.dumps({"planted": {name: [] for name in run.PLANTED}, "legitimate": {}}))
    asked: list[str] = []

    def task(name: str, arguments: dict[str, Any], limit: float) -> Outcome:
        asked.append(f"{name.partition(':')[2]} {arguments['model']}")
        if arguments["model"] == run.LEGITIMATE[1]:
            return Outcome(State.CRASHED, message="killed")
        return Outcome(State.OK, {"rows": [{"model": arguments["model"]}]})

    monkeypatch.setattr(run, "run_task", task)
    assert run.main([str(path)]) == 1
    assert asked == [f"legitimate_task {model}" for model in run.LEGITIMATE]
    found = json.loads(path.read_text())
    assert run.LEGITIMATE[1] not in found["legitimate"]
    asked.clear()
    assert run.main([str(path)]) == 1
    assert asked == [f"legitimate_task {run.LEGITIMATE[1]}"]
