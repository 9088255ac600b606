"""TVM's own importer on training graphs: each way to fall short is told apart, a crash costs one graph."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from relaxgrad.bridge.capture import capture_pair
from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage import stock
from relaxgrad.coverage.process import Outcome, State
from relaxgrad.coverage.stock import StockOutcome, run_stock, summary, try_stock


def outcomes(module: nn.Module, *args: Any) -> dict[str, stock.StockRecord]:
    runs: list[Any] = []
    capture_pair(module, args, on_run=lambda graph, inputs: runs.append((graph, [t.detach().clone() for t in inputs])))
    return {graph.kind.value: try_stock(graph, inputs) for graph, inputs in runs}


class Function(nn.Module):
    def __init__(self, function: Any):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 2.0, 16).reshape(4, 4))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.function(x, self.weight)
        return result


def test_right_graphs_are_right() -> None:
    found = outcomes(Function(lambda x, w: torch.tanh(x @ w).sum()), torch.randn(3, 4))
    assert {kind: r.outcome for kind, r in found.items()} == {
        "forward": StockOutcome.RIGHT, "backward": StockOutcome.RIGHT,
    }  # fmt: skip
    assert found["forward"].nodes > 2


def test_dropout_as_the_identity_is_wrong() -> None:
    found = outcomes(Function(lambda x, w: nn.functional.dropout(x @ w, 0.5, training=True).sum()), torch.ones(3, 4))
    assert found["forward"].outcome is StockOutcome.WRONG
    assert found["forward"].detail.startswith("output 0: ")


def test_an_op_without_a_translation_is_named() -> None:
    module = nn.Sequential(nn.Conv1d(2, 2, 3), nn.Flatten())
    found = outcomes(module, torch.randn(1, 2, 8))
    assert found["backward"].outcome is StockOutcome.NOT_MAPPED
    assert found["backward"].unmapped == ["convolution_backward.default"]


MODEL = """
    import torch
    from torch import nn

    def small():
        return nn.Linear(2, 2), (torch.ones(1, 2),)

    def raises():
        raise RuntimeError("no model")
"""


def test_a_model_is_run_in_workers(tmp_path: Path) -> None:
    file = tmp_path / "models.py"
    file.write_text(textwrap.dedent(MODEL))
    records = run_stock(f"{file}:small", 0, 120.0)
    assert [r["outcome"] for r in records] == ["right", "right"]
    with pytest.raises(UserError, match="no model"):
        run_stock(f"{file}:raises", 0, 120.0)


def test_a_graph_that_kills_its_worker_is_a_crash_and_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    right = {"kind": "backward", "nodes": 3, "outcome": "right", "detail": "", "unmapped": []}
    skipped: list[int] = []

    def run_task(task: str, arguments: dict[str, Any], timeout: float, listen: Any) -> Outcome:
        skipped.append(arguments["skip"])
        listen({"event": "begin", "graph": arguments["skip"], "kind": "forward", "nodes": 7})
        if len(skipped) == 1:
            return Outcome(State.CRASHED, message="killed by SIGSEGV")
        listen({"event": "graph", "graph": 1, "record": right})
        return Outcome(State.OK, {"graphs": 2})

    monkeypatch.setattr("relaxgrad.coverage.process.run_task", run_task)
    records = run_stock("x", 0, 1.0)
    assert skipped == [0, 1]
    assert [(r["outcome"], r["kind"], r["nodes"]) for r in records] == [
        ("crash", "forward", 7),
        ("right", "backward", 3),
    ]
    assert summary(records) == {
        "graphs": 2, "mapped": 1, "right": 1, "outcomes": {"crash": 1, "right": 1}, "unmapped": [],
    }  # fmt: skip
