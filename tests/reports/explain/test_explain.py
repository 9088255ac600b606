"""`relaxgrad explain`: every stage is there, tied to the one before, on one page that needs no network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from relaxgrad.bridge.errors import UserError
from relaxgrad.cli.main import main
from relaxgrad.coverage.models import load_problem
from relaxgrad.coverage.problem import Problem
from relaxgrad.reports.explain.page import page, plain
from relaxgrad.reports.explain.stages import NAMES, Listing, Stage, Table, forward_nodes, stages, ties
from tests.reports.html_page import needs_nothing_from_elsewhere, page_of


def seed_example() -> Problem:
    return load_problem("seed-example")


@pytest.fixture(scope="module")
def found() -> dict[str, Stage]:
    return {stage.name: stage for stage in stages(seed_example)}


def table(stage: Stage, title: str) -> Table:
    (one,) = [block for block in stage.blocks if block.title == title]
    assert isinstance(one, Table)
    return one


def listing(stage: Stage, start: str) -> Listing:
    return next(block for block in stage.blocks if isinstance(block, Listing) and block.title.startswith(start))


def test_every_backward_node_is_tied_to_the_forward_node_that_it_differentiates(found: dict[str, Stage]) -> None:
    tied = {row.cells[0].text: row.cells[-1].text for row in table(found["joint"], "Backward").rows}
    assert tied == {
        "detach": "relu", "detach_1": "relu", "threshold_backward": "relu", "sum_1": "add", "view": "add", "t": "mm",
        "mm_1": "mm",
    }  # fmt: skip
    forward = [row.cells[0].text for row in table(found["joint"], "Forward").rows]
    assert forward == ["mm", "add", "relu"]
    assert found["joint"].numbers == "3 calls forward, 7 backward, 7 of them tied"


def test_gradients_that_are_added_up_are_tied_too() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x @ self.weight) @ self.weight

    from relaxgrad.bridge.capture import capture_joint

    graph = capture_joint(Twice(), (torch.randn(2, 3),), decompose="none")
    forward, tied = forward_nodes(graph), ties(graph)
    backward = [n for n in graph.module.graph.nodes if n.op == "call_function" and n not in forward]
    assert any("add" in str(n.target) for n in backward)
    assert set(backward) == set(tied)


def test_the_other_stages_of_the_seed_example(found: dict[str, Stage]) -> None:
    assert list(found) == list(NAMES)
    assert "torch.relu(x @ self.w + self.b)" in listing(found["source"], "relaxgrad.coverage.zoo").text
    assert "torch.relu" in listing(found["dynamo"], "graph 1").text
    was = {row.cells[0].text: row.cells[1].text for row in table(found["decomposed"], "What became of it").rows}
    assert was["detach x2, threshold_backward"] == "alias x2, le.Scalar, scalar_tensor, where.self"
    saved = [row.cells[0].text for row in table(found["partition"], "Saved for the backward graph").rows]
    assert saved == ["le", "permute"]
    assert "R.call_tir" in listing(found["relax"], "forward: translated").text
    assert "vm.builtin" in [b for b in found["relax"].blocks if isinstance(b, Listing)][-1].text
    groups = {row.cells[0].text: row.cells[3].text for row in table(found["fusion"], "Groups").rows}
    assert groups["fused_add_relu"] == "add, relu"
    kernel = listing(found["kernels"], "forward: fused_add_relu (native), TIR")
    assert kernel.id == "kernel-forward-fused_add_relu"
    assert "T.vectorized" in kernel.text
    assert "fadd" in listing(found["kernels"], "forward: fused_add_relu (native), LLVM IR").text
    assert "sgemm_" in listing(found["kernels"], "forward: mm (library), TIR").text


def test_batch_norms_backward_is_taken_apart() -> None:
    (stage,) = stages(lambda: load_problem("cnn-bn"), ["decomposed"])
    was = {row.cells[0].text: row.cells[1].text for row in table(stage, "What became of it").rows}
    assert {"sub.Tensor x4", "mul.Tensor x9", "sum.dim_IntList x2"} <= set(
        was["native_batch_norm_backward"].split(", ")
    )


def test_the_page(found: dict[str, Stage]) -> None:
    hostile = "<script>alert(1)</script>"
    text = page(hostile, list(found.values()))
    parsed = page_of(text)
    assert needs_nothing_from_elsewhere(parsed)
    assert "#joint-relu" in parsed.links
    assert "#kernel-forward-fused_add_relu" in parsed.links
    assert hostile not in text
    assert text.count('data-tie="t-relu"') >= 4


def test_the_terminal_prints_a_stage(found: dict[str, Stage]) -> None:
    text = plain(found["fusion"])
    assert text.startswith("# What fuses into one kernel\n")
    assert "fused_add_relu" in text


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "seed-example", "--stage", "joint"]) == 0
    assert "threshold_backward" in capsys.readouterr().out
    assert main(["explain", "seed-example", "--stage", "nonsense"]) == 2
    assert "no stage is called 'nonsense'; stages: source, dynamo" in capsys.readouterr().err
    assert main(["explain", "seed-example", "-o", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_an_unknown_stage_is_refused() -> None:
    with pytest.raises(UserError, match="no stage is called 'x'"):
        stages(seed_example, ["x"])
