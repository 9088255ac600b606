# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad explain`: every stage is there, linked to the one before, on one page that needs no network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from relaxgrad.bridge.errors import UserError
from relaxgrad.cli.main import main
from relaxgrad.coverage.harness.models import load_problem
from relaxgrad.coverage.harness.problem import Problem
from relaxgrad.reports.explain.blocks import Listing, Stage, Table, calls_in, count
from relaxgrad.reports.explain.correspondence import Keys, calls_of, correspondence, forward_nodes
from relaxgrad.reports.explain.page import page, plain
from relaxgrad.reports.explain.stages import NAMES, stages
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


def test_every_backward_node_corresponds_to_the_forward_node_that_it_differentiates(found: dict[str, Stage]) -> None:
    matched = {row.cells[0].text: row.cells[-1].text for row in table(found["joint"], "Backward").rows}
    assert matched == {
        "detach": "relu", "detach_1": "relu", "threshold_backward": "relu", "sum_1": "add", "view": "add", "t": "mm",
        "mm_1": "mm",
    }  # fmt: skip
    forward = [row.cells[0].text for row in table(found["joint"], "Forward").rows]
    assert forward == ["mm", "add", "relu"]
    assert found["joint"].numbers == "3 calls forward, 7 backward, 7 of them matched"


def test_gradients_that_are_added_up_correspond_too() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x @ self.weight) @ self.weight

    from relaxgrad.bridge.capture import capture_joint

    graph = capture_joint(Twice(), (torch.randn(2, 3),), decompose="none")
    forward, matched = forward_nodes(graph), correspondence(graph)
    backward = [n for n in graph.module.graph.nodes if n.op == "call_function" and n not in forward]
    assert any("add" in str(n.target) for n in backward)
    assert set(backward) == set(matched)


@pytest.mark.parametrize("model", ["cnn-bn", "gpt2"])
def test_what_autograd_leaves_out_is_not_what_a_backward_node_differentiates(model: str) -> None:
    """Counters and masks have the number of the operation before them: the gradient is of that operation."""
    from relaxgrad.bridge.capture import capture_joint

    problem = load_problem(model)
    loss = problem.loss if problem.compile_loss else None
    graph = capture_joint(problem.module, problem.args, problem.kwargs, loss=loss, decompose="none")
    found = {
        (str(node.target), str(of.target))
        for node, of in correspondence(graph).items()
        if "backward" in str(node.target)
    }
    expected = {
        "cnn-bn": ("aten.convolution_backward.default", "aten.convolution.default"),
        "gpt2": ("aten.embedding_dense_backward.default", "aten.embedding.default"),
    }[model]
    assert {pair for pair in found if pair[0] == expected[0]} == {expected}


def test_a_node_has_the_same_key_in_every_capture_of_a_model() -> None:
    from relaxgrad.bridge.capture import capture_joint, capture_pair

    def model() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)), (torch.randn(5, 3),)

    joint = capture_joint(*model(), decompose="none")
    keys = Keys(joint)
    pair = capture_pair(*model())
    nodes = [node for graph in pair for node in calls_of(graph.module.graph)]
    found = keys.others(nodes)
    by_op = {str(node.target): keys.joint(node) for node in calls_of(joint.module.graph)}
    for node, key in found.items():
        if str(node.target) in ("aten.tanh.default", "aten.native_batch_norm.default"):
            assert key == by_op[str(node.target)]
    tanh = by_op["aten.tanh.default"]
    assert tanh == by_op["aten.tanh_backward.default"]
    backward = set(calls_of(pair[-1].module.graph))
    assert [n for n, key in found.items() if key == tanh and n in backward]
    # a capture that lacks the first operations is laid beside the joint graph where its ops meet
    later = [node for node in nodes if found.get(node) not in (found[nodes[0]], None)]
    assert keys.others(later) == {node: found[node] for node in later}


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
    assert groups["fused_add_relu_alias_alias_le"] == "add, relu, alias, alias_1, le"
    kernel = listing(found["kernels"], "forward: fused_add_relu_alias_alias_le (native), TIR")
    assert kernel.id == "kernel-forward-fused_add_relu_alias_alias_le"
    assert "T.vectorized" in kernel.text
    assert "fadd" in listing(found["kernels"], "forward: fused_add_relu_alias_alias_le (native), LLVM IR").text
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
    joint = table(found["joint"], "Forward").rows
    line = joint[0].cells[3].link.removeprefix("line-")
    assert needs_nothing_from_elsewhere(parsed)
    assert "#joint-relu" in parsed.links
    assert "#kernel-forward-fused_add_relu_alias_alias_le" in parsed.links
    assert hostile not in text
    assert text.count('data-keys="t-relu"') >= 4
    assert parsed.links.count(f"#line-{line}") > 10
    for expected in ("#forward-relu", "#backward-where", "#kernel-backward-fused_scalar_tensor_where"):
        assert expected in parsed.links


def test_calls_in_printed_relax_are_told_from_what_looks_like_them() -> None:
    text = """def main(x: R.Tensor((4,), dtype="float32")):
    mm1 = R.call_tir(mm, (x, x), out_ty=R.Tensor((4, 4), dtype="float32"))
    fused_add_relu(mm1, R.builtin.alloc_tensor(x))"""
    assert calls_in(text) - {"main", "def"} == {"mm", "fused_add_relu"}
    assert (count(1, "class", "classes"), count(1200, "node")) == ("1 class", "1,200 nodes")


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
