# SPDX-License-Identifier: Apache-2.0
"""A captured graph as text and as files."""

from __future__ import annotations

import contextlib
import json
import os
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from relaxgrad.bridge import files
from relaxgrad.bridge.capture import capture_joint, capture_pair, render, save, show
from relaxgrad.bridge.schemas import CapturedGraph
from tests.bridge.capture.models import Net, net_inputs


@pytest.fixture(scope="module")
def joint() -> CapturedGraph:
    args, kwargs = net_inputs()
    return capture_joint(Net(), args, kwargs)


def section(text: str, title: str) -> list[str]:
    """The lines of one section, their runs of spaces made one."""
    (found,) = (part for part in text.split("\n\n") if part.splitlines()[0] == title)
    return [" ".join(line.split()) for line in found.splitlines()[1:]]


def test_the_text_says_roles_nodes_counts_and_residue(joint: CapturedGraph) -> None:
    text = render(joint)
    assert text.startswith("joint graph, decomposition core_aten: 12 inputs, ")
    inputs = section(text, "inputs")
    assert inputs[0] == "primals_1 parameter first.weight float32[4, 4] needs gradient"
    assert any(line.endswith("tangent output['out'] float32[5, 4]") for line in inputs)
    outputs = section(text, "outputs")
    assert any("new value of norm.running_mean float32[4]" in line for line in outputs)
    assert any("gradient of first.weight float32[4, 4]" in line for line in outputs)
    nodes = section(text, "nodes")
    calls = [n for n in joint.module.graph.nodes if n.op == "call_function"]
    assert len(nodes) == len(calls)
    addmm = next(line for line in nodes if "aten.addmm.default(" in line)
    assert addmm.startswith("addmm float32[5, 4] aten.addmm.default(primals_2, ")
    assert "models.py:" in addmm
    assert "(hidden = self.norm(self.first(x)))" in addmm
    assert section(text, "outside core ATen") == ["1 aten.bernoulli.p"]
    assert sum(int(line.split()[0]) for line in section(text, "ops")) == len(calls)


def test_a_forward_graph_says_what_it_mutates() -> None:
    args, kwargs = net_inputs()
    forward, _ = capture_pair(Net(), args, kwargs)
    written = {line.split()[1] for line in section(render(forward), "mutated in place")}
    assert written == {i.name for i in forward.inputs if i.role == "buffer"}


def test_symbolic_numbers_and_several_outputs_are_shown() -> None:
    class Splits(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).topk(2)[0] * x.shape[0]

    text = render(capture_joint(Splits(3, 3), (torch.randn(7, 3),), dynamic=True))
    assert "(float32[s" in text
    assert "SymInt s" in text
    assert "getitem" not in " ".join(section(text, "ops"))


def test_the_files(joint: CapturedGraph, tmp_path: Path) -> None:
    folder = save(joint, tmp_path / "new" / "deeper")
    assert sorted(p.name for p in folder.iterdir()) == ["graph.txt", "ops.json", "signature.json"]
    assert (folder / "graph.txt").read_text() == render(joint)
    signature = json.loads((folder / "signature.json").read_text())
    assert signature["kind"] == "joint"
    assert signature["inputs"][0] == {
        "name": "primals_1",
        "role": "parameter",
        "target": "first.weight",
        "shape": ["4", "4"],
        "stride": ["4", "1"],
        "dtype": "float32",
        "requires_grad": True,
    }
    assert len(signature["outputs"]) == len(joint.outputs)
    ops = json.loads((folder / "ops.json").read_text())
    assert ops["non_core_ops"] == {"aten.bernoulli.p": 1}
    assert ops["ops"]["aten.addmm.default"] == 2


def test_a_file_is_whole_or_as_it_was(joint: CapturedGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(joint, tmp_path)
    before = (tmp_path / "graph.txt").read_text()

    real = os.fdopen

    @contextlib.contextmanager
    def full(handle: int, mode: str) -> Iterator[Any]:
        def write(content: bytes) -> None:
            file.write(content[:10])
            raise OSError(28, "No space left on device")

        with real(handle, mode) as file:
            yield types.SimpleNamespace(write=write)

    monkeypatch.setattr(show, "render", lambda graph: "another text")
    monkeypatch.setattr(files.os, "fdopen", full)
    with pytest.raises(OSError, match="No space left"):
        save(joint, tmp_path)
    assert (tmp_path / "graph.txt").read_text() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graph.txt", "ops.json", "signature.json"]
