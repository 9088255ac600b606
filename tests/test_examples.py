# SPDX-License-Identifier: Apache-2.0
"""The examples learn what they say: the loss falls, on graphs that TVM runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from relaxgrad.bridge.backend import record_graphs
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.schemas import GraphKind, GraphRecord

FOLDER = Path(__file__).parent.parent / "examples"


def load(name: str) -> ModuleType:
    torch.compiler.reset()
    spec = importlib.util.spec_from_file_location(f"examples_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def check_ran(graphs: list[GraphRecord], steps: int, parts: int = 1) -> None:
    """`parts` forward and backward graphs ran `steps` times on TVM; what ran in eager has no graph, or no kernels."""
    for kind in (GraphKind.FORWARD, GraphKind.BACKWARD):
        own = [graph for graph in graphs if graph.kind is kind]
        assert sum(graph.runs for graph in own) == steps * parts
        assert all(graph.kernels for graph in own)
        assert not any(graph.calls.get(Kind.FALLBACK) for graph in own)


def test_every_example_has_a_test() -> None:
    named = Path(__file__).read_text(encoding="utf-8")
    assert {path.stem for path in FOLDER.glob("*.py") if f'load("{path.stem}")' not in named} == set()


def test_char_gpt(capsys: pytest.CaptureFixture[str]) -> None:
    example = load("char_gpt")
    with record_graphs() as graphs:
        model, alphabet, losses = example.train(20, batch=4)
    check_ran(graphs, 20)
    assert losses[-1] < 0.8 * losses[0]
    *_, eager = example.train(4, eager=True, batch=4)
    torch.testing.assert_close(losses[:4], eager, rtol=1e-4, atol=0)
    assert len(example.write(model, alphabet, 5)) == 5
    assert "step 19" in capsys.readouterr().out


def test_digits_cnn() -> None:
    example = load("digits_cnn")
    with record_graphs() as graphs:
        right = example.train(1)
    check_ran(graphs, -(-1500 // 64))
    assert right > 0.8


def test_hf_trainer(tmp_path: Path) -> None:
    example = load("hf_trainer")
    with record_graphs() as graphs:
        losses = example.train(20, str(tmp_path))
    check_ran(graphs, 20, parts=2)  # Dynamo breaks between the model and its loss
    assert len(losses) == 2
    assert losses[1] < losses[0]


def test_bf16() -> None:
    example = load("bf16")
    with record_graphs() as graphs:
        low = example.train(30, bf16=True)
    check_ran(graphs, 30)
    high = example.train(30, bf16=False)
    assert low[-1] < 0.5 * low[0]
    assert low != high  # the products did run in bfloat16
    torch.testing.assert_close(low[-1], high[-1], rtol=0.3, atol=0)
