# SPDX-License-Identifier: Apache-2.0
"""`relaxgrad capture`: prints and saves the graphs of a model, and says in one line what is wrong with one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relaxgrad.cli.main import main

FACTORY = """
import torch
from torch import nn

class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        y = self.a(x)
        return self.b(y * float(y.sum().item() > 0))

def breaks():
    return Breaks(), (torch.randn(2, 3),)

class Detached(nn.Linear):
    def forward(self, x):
        return super().forward(x).detach()

def detached():
    return Detached(3, 3), (torch.randn(2, 3),)
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    file = tmp_path / "models.py"
    file.write_text(FACTORY)
    return file


def test_the_joint_graph_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "seed-example"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("joint graph, decomposition core_aten: ")
    assert "gradient of  w" in text
    assert "aten.mm.default" in text


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_one_graph_of_the_pair(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "seed-example", "--graph", which]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{which} graph, ")
    assert ("tangent" in text) is (which == "backward")


def test_no_decomposition_and_symbolic_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "mlp", "--decompose", "none"]) == 0
    text = capsys.readouterr().out
    assert "decomposition none" in text
    assert "aten.t.default" in text
    assert main(["capture", "mlp", "--dynamic"]) == 0
    text = capsys.readouterr().out
    assert "float32[s" in text
    assert "aten.t.default" not in text


def test_the_graph_is_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    assert main(["capture", "seed-example", "-o", str(folder)]) == 0
    printed = capsys.readouterr()
    assert (folder / "graph.txt").read_text().strip() == printed.out.strip()
    assert str(folder) in printed.err
    assert json.loads((folder / "signature.json").read_text())["kind"] == "joint"


def test_each_graph_between_breaks_is_printed_and_saved(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert main(["capture", f"{models}:breaks", "--graph", "forward", "-o", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "graph 1 of 3 (the module has graph breaks)" in text
    assert "graph 3 of 3" in text
    assert sorted(p.name for p in folder.iterdir()) == ["forward-1", "forward-2", "forward-3"]  # the loss is the third


def test_what_cannot_be_captured_is_one_line(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for arguments, says in (
        (["no-such-model"], "unknown model 'no-such-model'"),
        ([f"{models}:breaks"], "depends on the values of a tensor at "),
        ([f"{models}:detached", "--graph", "backward"], "has no backward graph, only inference"),
        (["seed-example", "-o", str(file)], "is a file; name a directory"),
        (["seed-example", "--graph", "all"], "all"),
        (["seed-example", "--decompose", "all"], "all"),
        ([], "MODEL"),
    ):
        assert main(["capture", *arguments]) == 2, arguments
        printed = capsys.readouterr()
        assert says in printed.err, arguments
        assert len(printed.err.strip().splitlines()) == 1, printed.err
        assert printed.out == ""


def test_a_folder_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["capture", "seed-example", "-o", str(tmp_path / "file" / "below")]) == 2
    assert "cannot write to" in capsys.readouterr().err
