"""The road through ONNX: how far each graph comes, and what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from relaxgrad.bridge.capture import capture_pair
from relaxgrad.cli.main import main
from relaxgrad.coverage import onnx_road
from relaxgrad.coverage.onnx_road import Road, row, run_onnx, try_onnx
from relaxgrad.coverage.stock import keep_run


class Function(nn.Module):
    def __init__(self, function: Any):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 2.0, 16).reshape(4, 4))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.function(x, self.weight)
        return result


def runs_of(function: Any) -> list[Any]:
    runs: list[Any] = []
    capture_pair(Function(function), (torch.randn(3, 4),), on_run=keep_run(runs))
    return runs


def test_right_graphs_are_right_on_tvm_and_in_onnxruntime() -> None:
    pytest.importorskip("onnxruntime")
    for graph, inputs in runs_of(lambda x, w: torch.tanh(x @ w).sum()):
        record = try_onnx(graph, inputs)
        assert (record.tvm, record.onnxruntime, record.detail) == (Road.RIGHT, Road.RIGHT, "")
        assert record.nodes > 1


def test_dropout_draws_other_numbers_in_onnxruntime_and_is_unknown_to_tvms_importer() -> None:
    (forward, inputs), _ = runs_of(lambda x, w: nn.functional.dropout(x @ w, 0.5, training=True).sum())
    record = try_onnx(forward, inputs)
    assert record.tvm is Road.NOT_MAPPED
    assert record.unmapped == ["RandomUniformLike"]
    assert record.onnxruntime in (Road.WRONG, None)


def test_an_op_that_onnx_cannot_express_is_named() -> None:
    (forward, inputs), *_ = runs_of(lambda x, w: torch.linalg.qr(x @ w)[1].sum())
    record = try_onnx(forward, inputs)
    assert record.tvm is Road.NOT_EXPORTED
    assert record.unmapped == ["aten.linalg_qr"]


def test_a_crash_costs_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_of(lambda x, w: torch.tanh(x @ w).sum())
    original = try_onnx

    def planted(graph: Any, inputs: Any) -> Any:
        if graph.kind.value == "forward":
            import os

            os.abort()
        return original(graph, inputs)

    monkeypatch.setattr(onnx_road, "try_onnx", planted)
    records = run_onnx(runs)
    assert [(r["kind"], r["tvm"]) for r in records] == [("forward", "crash"), ("backward", "right")]
    assert records[0]["detail"] == "killed by SIGABRT"
    assert row(records)[:5] == [2, 1, 1, 1, 1]


def test_the_audit_shows_the_road(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "seed-example", "--via", "onnx"]) == 0
    assert "by way of ONNX, graph 0, forward: right on TVM" in capsys.readouterr().out
    assert main(["audit", "seed-example", "--via", "tflite"]) == 2
    assert main(["audit", "--core-aten", "--via", "onnx"]) == 2


def test_a_graph_is_saved_as_onnx(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import onnx

    folder = tmp_path / "graph"
    assert main(["capture", "seed-example", "-o", str(folder), "--format", "onnx"]) == 0
    model = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(model)
    assert [i.name for i in model.graph.input] == ["primals_1", "primals_2", "primals_3", "tangents_1"]
    assert main(["capture", "seed-example", "--format", "onnx"]) == 2
    assert "--format onnx needs -o DIR" in capsys.readouterr().err
