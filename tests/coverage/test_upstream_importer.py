# SPDX-License-Identifier: Apache-2.0
"""TVM's own importer on training graphs: each way to fall short is told apart, a crash costs one graph."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
import torch
from torch import nn

from relaxgrad.bridge.capture import capture_pair
from relaxgrad.coverage import upstream_importer
from relaxgrad.coverage.upstream_importer import (
    UpstreamOutcome,
    UpstreamRecord,
    keep_run,
    run_upstream,
    summary,
    try_upstream,
)


def outcomes(module: nn.Module, *args: Any) -> dict[str, UpstreamRecord]:
    runs: list[Any] = []
    capture_pair(module, args, on_run=lambda graph, inputs: runs.append((graph, [t.detach().clone() for t in inputs])))
    return {graph.kind.value: try_upstream(graph, inputs) for graph, inputs in runs}


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
        "forward": UpstreamOutcome.RIGHT, "backward": UpstreamOutcome.RIGHT,
    }  # fmt: skip
    assert found["forward"].nodes > 2


def test_dropout_as_the_identity_is_wrong() -> None:
    found = outcomes(Function(lambda x, w: nn.functional.dropout(x @ w, 0.5, training=True).sum()), torch.ones(3, 4))
    assert found["forward"].outcome is UpstreamOutcome.WRONG
    assert found["forward"].detail.startswith("output 0: ")


def test_an_op_without_a_translation_is_named() -> None:
    module = nn.Sequential(nn.Conv1d(2, 2, 3), nn.Flatten())
    found = outcomes(module, torch.randn(1, 2, 8))
    assert found["backward"].outcome is UpstreamOutcome.NOT_MAPPED
    assert found["backward"].unmapped == ["convolution_backward.default"]


@pytest.mark.parametrize("detail", ["killed by SIGSEGV", "no result within 20 s"])
def test_a_graph_that_kills_its_process_or_hangs_is_a_crash_and_the_next_one_runs(
    detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Any] = []
    capture_pair(Function(lambda x, w: torch.tanh(x @ w).sum()), (torch.randn(3, 4),), on_run=keep_run(runs))
    original = try_upstream

    def planted(graph: Any, inputs: Any) -> UpstreamRecord:
        if graph.kind.value == "forward":
            os.kill(os.getpid(), signal.SIGSEGV) if "SIGSEGV" in detail else time.sleep(100)
        return original(graph, inputs)

    monkeypatch.setattr(upstream_importer, "try_upstream", planted)
    records = run_upstream(runs, 20.0)
    assert [(r["kind"], r["outcome"]) for r in records] == [("forward", "crash"), ("backward", "right")]
    assert (records[0]["detail"], records[0]["nodes"]) == (detail, runs[0][0].ops().total())
    assert summary(records) == {
        "graphs": 2, "mapped": 1, "right": 1, "outcomes": {"crash": 1, "right": 1}, "unmapped": [],
    }  # fmt: skip
