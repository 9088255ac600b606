# SPDX-License-Identifier: Apache-2.0
"""The path through ONNX: how far each graph comes, and what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from relaxgrad.bridge.capture import capture_pair
from relaxgrad.cli.main import main
from relaxgrad.coverage import onnx_path
from relaxgrad.coverage.onnx_path import OnnxOutcome, draws_given, row, run_onnx, try_onnx
from relaxgrad.coverage.upstream_importer import keep_run
from tests.expected_skips import need_package


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
    need_package("onnxruntime")
    for graph, inputs in runs_of(lambda x, w: torch.tanh(x @ w).sum()):
        record = try_onnx(graph, inputs)
        assert (record.tvm, record.onnxruntime, record.detail) == (OnnxOutcome.RIGHT, OnnxOutcome.RIGHT, "")
        assert record.nodes > 1


def test_dropout_takes_the_road_twice() -> None:
    """ONNX draws other numbers, and TVM's importer knows no such operator: with its masks given, all is compared."""
    (forward, inputs), _ = runs_of(lambda x, w: nn.functional.dropout(torch.tanh(x @ w), 0.5, training=True).sum())
    record = try_onnx(forward, inputs)
    assert (record.tvm, record.unmapped, record.random) == (
        OnnxOutcome.NOT_MAPPED, ["RandomUniformLike"], ["aten.bernoulli.p"],
    )  # fmt: skip
    assert record.onnxruntime in (OnnxOutcome.DRAWS, None)
    assert record.given is not None
    assert (record.given["tvm"], record.given["detail"]) == (OnnxOutcome.RIGHT, "")
    assert record.given["onnxruntime"] in (OnnxOutcome.RIGHT, None)
    assert row([record.to_json()])[:6] == [1, 1, 0, 1, 1, 1]


def test_given_masks_are_those_that_are_drawn() -> None:
    (forward, inputs), _ = runs_of(lambda x, w: nn.functional.dropout(x @ w, 0.5, training=True).sum())
    given, values = draws_given(forward, inputs)
    assert [i.role for i in given.inputs[len(forward.inputs) :]] == ["rng"]
    assert not any("bernoulli" in str(n.target) for n in given.module.graph.nodes if n.op == "call_function")
    torch.manual_seed(onnx_path.SEED)
    expected = forward.module(*inputs)
    torch.manual_seed(onnx_path.SEED + 1)
    for one, other in zip(expected, given.module(*values), strict=True):
        assert torch.equal(one, other)


def test_layer_norms_further_outputs_are_wrong_in_tvms_importer() -> None:
    """Found on this path: the importer makes scalars of a layer norm's mean and deviation."""
    (forward, inputs), *_ = runs_of(lambda x, w: nn.functional.layer_norm(x @ w, (4,)).pow(2).sum())
    record = try_onnx(forward, inputs)
    assert record.tvm is OnnxOutcome.WRONG
    assert "shape (() against (3, 1))" in record.detail


def test_every_op_without_a_form_is_named() -> None:
    """The exporter stops at the first one."""

    def two(x: Tensor, w: Tensor) -> Tensor:
        return torch.linalg.qr(x @ w)[1].sum() + torch.linalg.eigvalsh(w @ w.t()).sum()

    (forward, inputs), *_ = runs_of(two)
    record = try_onnx(forward, inputs)
    assert record.tvm is OnnxOutcome.NOT_EXPORTED
    assert record.unmapped == ["aten._linalg_eigh", "aten.linalg_qr"]
    assert "\x1b" not in record.detail


def test_an_op_that_onnx_cannot_express_is_named() -> None:
    (forward, inputs), *_ = runs_of(lambda x, w: torch.linalg.qr(x @ w)[1].sum())
    record = try_onnx(forward, inputs)
    assert record.tvm is OnnxOutcome.NOT_EXPORTED
    assert record.unmapped == ["aten.linalg_qr"]


def test_a_crash_costs_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_of(lambda x, w: torch.tanh(x @ w).sum())
    original = try_onnx

    def planted(graph: Any, inputs: Any) -> Any:
        if graph.kind.value == "forward":
            import os

            os.abort()
        return original(graph, inputs)

    monkeypatch.setattr(onnx_path, "try_onnx", planted)
    records = run_onnx(runs)
    assert [(r["kind"], r["tvm"]) for r in records] == [("forward", "crash"), ("backward", "right")]
    assert records[0]["detail"] == "killed by SIGABRT"
    assert row(records)[:6] == [2, 1, 1, 1, 1, 1]


@pytest.mark.slow
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
