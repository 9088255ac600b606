# SPDX-License-Identifier: Apache-2.0
"""RELAXGRAD_LOGS: prints the stages of each graph that was compiled, and changes nothing of it."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from relaxgrad.bridge import logs
from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.compile.cache import entries as cache
from relaxgrad.bridge.compile.inspect import trace
from relaxgrad.bridge.importer import translate
from relaxgrad.bridge.schemas import GraphRecord
from relaxgrad.reports.explain.stages import NAMES


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The switch is off before a test, and its logger as it was after it."""
    monkeypatch.delenv(logs.VARIABLE, raising=False)
    logger = logging.getLogger("relaxgrad.stages")
    yield
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


class Model(nn.Module):
    """One matrix product and a group that fuses. forward(x): (3, 4) -> ()."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x) * 2 + 1).sum()


def step(dynamic: bool = False) -> tuple[Tensor, list[GraphRecord]]:
    """The gradient of the weight after one compiled step, and the records of its graphs."""
    torch.compiler.reset()
    model = Model()
    with record_graphs() as graphs:
        torch.compile(model, backend=relaxgrad, dynamic=dynamic)(torch.linspace(-1, 1, 12).reshape(3, 4)).backward()
    assert model.linear.weight.grad is not None
    return model.linear.weight.grad, graphs


def titles(text: str) -> list[str]:
    return [line.removeprefix("[relaxgrad] ") for line in text.splitlines() if line.startswith("[relaxgrad]")]


def test_all_stages_of_each_graph_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(logs.VARIABLE, "all")
    _, (forward, backward) = step()
    text = capsys.readouterr().err
    found = titles(text)
    for graph in (forward, backward):
        own = [title.removeprefix(f"graph {graph.index}, ") for title in found if f"graph {graph.index}," in title]
        assert own[0].startswith(f"{graph.kind}: ")
        assert f"{graph.kernels} kernel" in own[0]
        assert "compiled in" in own[0]
        stages = [title.split(", ")[1].rstrip(":") for title in own[1:]]
        assert list(dict.fromkeys(stages)) == list(logs.STAGES)
        assert len(own) == len(set(own))
        assert sum(title.endswith("(native), TIR:") for title in own) == graph.kernels
    assert "aten.tanh.default(" in text
    assert "def main(primals_1: R.Tensor" in text
    assert "define " in text
    assert "in test_logs.py" in text or "test_logs.py:" in text  # the line of the model


@pytest.mark.parametrize("stage", logs.STAGES)
def test_only_what_is_wanted(stage: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(logs.VARIABLE, f" {stage}, ")
    step()
    bodies = [title for title in titles(capsys.readouterr().err) if title.endswith(":")]
    assert bodies
    assert all(f", {stage}" in title for title in bodies)


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_compiled_is_the_same_and_the_second_time_from_the_cache(
    dynamic: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RELAXGRAD_CACHE", "1")
    gradients, entries = [], []
    for folder, value in (("off", ""), ("on", "all"), ("on", "relax")):
        monkeypatch.setenv("RELAXGRAD_CACHE_DIR", str(tmp_path / folder))
        monkeypatch.setenv(logs.VARIABLE, value)
        monkeypatch.setattr(cache, "_memory", weakref.WeakValueDictionary())  # as in another process
        gradients.append(step(dynamic)[0])
        entries.append(sorted(file.name for file in (tmp_path / folder / "graphs").glob("*.so")))
        told = titles(capsys.readouterr().err)
    assert sum("from the cache of compiled graphs" in title for title in told) == 2
    assert entries == [entries[0]] * 3
    assert len(entries[0]) == 2
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


def test_a_name_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(logs.VARIABLE, "relax,kernel")
    with pytest.raises(
        Exception, match="RELAXGRAD_LOGS='relax,kernel': no stage is called 'kernel'; stages: "
    ) as error:
        step()
    (line,) = [line for line in str(error.value).splitlines() if "no stage" in line]
    assert all(stage in line for stage in logs.STAGES)


def test_the_names_are_those_of_explain() -> None:
    assert set(logs.STAGES) < set(NAMES)


def test_a_graph_that_runs_in_aten_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setenv(logs.VARIABLE, "all")
    monkeypatch.setattr(translate, "translate", fails)
    step()
    found = titles(capsys.readouterr().err)
    assert sum(title.endswith("runs in ATen as a whole") for title in found) == 2
    assert any("in ATen: aten.tanh.default" in title and "planted" in title for title in found)
    assert not any(", relax" in title for title in found)


def test_a_listing_that_fails_costs_no_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected, _ = step()

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setenv(logs.VARIABLE, "partition,kernels")
    monkeypatch.setattr(trace, "traced", fails)
    gradient, graphs = step()
    assert torch.equal(gradient, expected)
    assert all(graph.kernels for graph in graphs)
    assert titles(capsys.readouterr().err)[-1].endswith("no more listings: RuntimeError: planted")


def test_off_it_loads_and_prints_nothing() -> None:
    code = (
        "import sys, logging, torch; m = torch.nn.Linear(2, 2);"
        "torch.compile(m, backend='relaxgrad')(torch.ones(1, 2)).sum().backward();"
        "assert m.weight.grad.abs().sum() > 0;"
        "assert 'relaxgrad.bridge.backend' in sys.modules;"
        "assert 'relaxgrad.bridge.compile.inspect.trace' not in sys.modules;"
        "assert not logging.getLogger('relaxgrad.stages').handlers"
    )
    environment = {key: value for key, value in os.environ.items() if key != logs.VARIABLE}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_docs_have_every_switch() -> None:
    root = Path(__file__).parents[2]
    text = (root / "docs" / "switches.md").read_text(encoding="utf-8")
    for name, meaning in logs.STAGES.items():
        assert f"| `{name}` | {meaning} |" in text
    sources = "".join(file.read_text(encoding="utf-8") for file in (root / "bridge").rglob("*.py"))
    switches = set(re.findall(r"\bRELAXGRAD_[A-Z_]*[A-Z]\b", sources))
    assert len(switches) >= 4
    assert {name for name in switches if f"| `{name}` |" not in text} == set()
