"""Graph samples: what is saved is loaded again, in another process too; what is none is refused and runs nothing."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from relaxgrad.bridge import samples
from relaxgrad.bridge.capture import capture_joint, capture_pair
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.samples.groups import fused_groups, group_graph, values_of
from relaxgrad.bridge.samples.schema import JSON_FILE, TENSOR_FILE, Sample, digest, read, written
from relaxgrad.bridge.samples.values import at_path, joint_inputs
from relaxgrad.bridge.schemas import CapturedGraph
from relaxgrad.cli.main import main


class Block(nn.Module):
    """Statistics that are written in place, dropout, an index, a constant, a view. forward(x): (4, 6) -> (4, 3)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.norm = nn.BatchNorm1d(6)
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor, keep: dict[str, list[Tensor]]) -> Tensor:
        hidden = nn.functional.dropout(self.linear(self.norm(x)), 0.5)
        chosen = hidden[:, torch.tensor([0, 2, 5])] + keep["bias"][1].t()[0]
        return torch.clamp(chosen, -float("inf"), 3.0) * 2


ARGS = (torch.randn(6, 4).t(), {"bias": [torch.zeros(1), torch.randn(3, 2)]})


def runs_of(model: nn.Module, *args: Any) -> list[tuple[CapturedGraph, list[Any]]]:
    found: list[Any] = []

    def keep(graph: CapturedGraph, inputs: list[Any]) -> None:
        found.append((graph, [v.detach().clone() if isinstance(v, Tensor) else v for v in inputs]))

    capture_pair(model, args, on_run=keep)
    return found


def equal(folder: Path) -> bool:
    return all(result.equal and result.layout for result in samples.replay(samples.load(folder)))


@pytest.mark.parametrize("decompose", ["core_aten", "none"])
def test_a_joint_graph(decompose: str, tmp_path: Path) -> None:
    model = Block()
    joint = capture_joint(model, ARGS, decompose=decompose)
    sample = samples.save(joint, joint_inputs(joint, model, ARGS, {}), tmp_path)
    assert {o.role for o in sample.outputs} >= {"output", "gradient", "mutation"}
    assert [i.tensor.stride for i in sample.inputs if i.target == "args[0]" and i.tensor] == [[1, 4]]
    assert equal(tmp_path)
    state = torch.get_rng_state()
    for result in samples.replay(samples.load(tmp_path), "relaxgrad"):
        assert result.layout
    assert torch.equal(torch.get_rng_state(), state)


def test_forward_backward_and_fused_groups(tmp_path: Path) -> None:
    found = runs_of(Block(), *ARGS)
    assert [graph.kind.value for graph, _ in found] == ["forward", "backward"]
    sizes = []
    for graph, inputs in found:
        samples.save(graph, inputs, tmp_path / graph.kind)
        assert equal(tmp_path / graph.kind)
        values = values_of(graph.module, inputs, 7)
        for kernel, members in fused_groups(graph):
            part, outside = group_graph(graph, members)
            folder = tmp_path / f"{graph.kind}-{kernel}"
            sample = samples.save(part, [values[node] for node in outside], folder, part=kernel)
            assert sample.part == kernel
            assert equal(folder)
            sizes.append(len(members))
    assert len(sizes) >= 2
    assert min(sizes) >= 2
    assert samples.load(tmp_path / "forward").sample.written


def test_another_process_gets_the_same_bits(tmp_path: Path) -> None:
    model = Block()
    joint = capture_joint(model, ARGS)
    samples.save(joint, joint_inputs(joint, model, ARGS, {}), tmp_path)
    command = [sys.executable, "-m", "relaxgrad.cli", "replay", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count = len(samples.load(tmp_path).sample.outputs)
    assert done.stdout.splitlines()[-1] == f"joint: {count} of {count} outputs bit-equal on eager"


def test_large_inputs_are_drawn_again(tmp_path: Path) -> None:
    model = nn.Linear(1500, 1000)
    graph = capture_joint(model, (torch.randn(2, 1500),))
    sample = samples.save(graph, joint_inputs(graph, model, (torch.randn(2, 1500),), {}), tmp_path)
    assert [i.tensor.seed is not None for i in sample.inputs if i.tensor] == [True, False, False, False]
    assert (tmp_path / TENSOR_FILE).stat().st_size < 100_000
    assert equal(tmp_path)


def test_symbolic_sizes_are_refused(tmp_path: Path) -> None:
    graph = capture_joint(nn.Linear(3, 3), (torch.randn(2, 3),), dynamic=True)
    with pytest.raises(UserError, match="no symbolic sizes"):
        samples.save(graph, [torch.zeros(2)] * len(graph.inputs), tmp_path)


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, -2.5, float("inf"), [1, (2, None)], "mean", torch.float16, torch.strided,
        torch.channels_last, torch.device("cpu"),
    ],
    ids=str,
)  # fmt: skip
def test_arguments_are_read_as_written(value: Any) -> None:
    text = json.loads(json.dumps(written(value), allow_nan=False))
    found = read(text, lambda name: None)
    assert found == value
    assert type(found) is type(value)


def test_digests_tell_dtype_size_and_sign() -> None:
    x = torch.zeros(4)
    others = [x.double(), x.reshape(2, 2), -x, None, 0, 0.0, False]
    assert len({digest(v) for v in [x, *others]}) == 8


def test_paths_are_read_step_by_step() -> None:
    arguments = {"args": (1, {"x": [5, {"y": 7}]}), "kwargs": {}}
    assert at_path(arguments, "args[1]['x'][1]['y']") == 7


# ---- refused ----


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = nn.Linear(3, 2)
    graph = capture_joint(model, (torch.randn(2, 3),))
    samples.save(graph, joint_inputs(graph, model, (torch.randn(2, 3),), {}), tmp_path)
    assert equal(tmp_path)
    return tmp_path


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The sample changed, and given the hash of what it then is: as somebody does who means harm."""
    body = json.loads((folder / JSON_FILE).read_text())
    body.pop("hash")
    change(body)
    tensors = (folder / TENSOR_FILE).read_bytes()
    try:
        text = Sample.model_validate(body).text(tensors)
    except ValueError:
        text = json.dumps(body | {"hash": "0" * 64})
    (folder / JSON_FILE).write_text(text)


def refused(folder: Path) -> str:
    with pytest.raises(UserError) as error:
        samples.load(folder)
    return str(error.value)


def test_cut_and_edited_ones(folder: Path) -> None:
    text, tensors = (folder / JSON_FILE).read_text(), (folder / TENSOR_FILE).read_bytes()
    (folder / TENSOR_FILE).write_bytes(tensors[:-4])
    assert "it was cut or replaced" in refused(folder)
    (folder / TENSOR_FILE).write_bytes(b"\1" + tensors[1:])
    assert "it was changed after it was saved" in refused(folder)
    (folder / TENSOR_FILE).write_bytes(tensors)
    (folder / JSON_FILE).write_text(text.replace("aten.mm.default", "aten.bmm.default"))
    assert "it was changed after it was saved" in refused(folder)
    (folder / JSON_FILE).write_text(text[: len(text) // 2])
    assert "is no JSON" in refused(folder)
    (folder / JSON_FILE).unlink()
    assert "cannot read sample.json" in refused(folder)


def test_a_pickle_is_not_opened(folder: Path) -> None:
    class Harm:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(folder / "harm"),)

    for name in (TENSOR_FILE, JSON_FILE):
        (folder / name).write_bytes(pickle.dumps(Harm()))
        refused(folder)
    assert not (folder / "harm").exists()


def test_a_link_out_of_the_folder_is_not_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / TENSOR_FILE
    outside.write_bytes((folder / TENSOR_FILE).read_bytes())
    (folder / TENSOR_FILE).unlink()
    (folder / TENSOR_FILE).symlink_to(outside)
    assert "cannot read tensors.bin" in refused(folder)


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd"])
def test_a_path_is_no_key_of_a_sample(path: str, folder: Path) -> None:
    rewritten(folder, lambda body: body["inputs"][0]["tensor"].update(file=path))
    assert "inputs.0.tensor.file: Extra inputs are not permitted" in refused(folder)


@pytest.mark.parametrize(
    "target",
    ["os.system", "aten.from_file.default", "builtins.eval.x", "torch.load.default", "aten.mm", "aten.__class__.mro"],
)
def test_only_ops_of_aten_are_called(target: str, folder: Path) -> None:
    rewritten(folder, lambda body: body["nodes"][0].update(target=target))
    assert "is no op that a sample may call" in refused(folder) or "has no op" in refused(folder)


def test_bombs_are_refused_before_they_take_memory(folder: Path) -> None:
    def large_input(body: dict[str, Any]) -> None:
        tensor = body["inputs"][0]["tensor"]
        tensor.pop("start")
        tensor.update(size=[1 << 40, 1 << 20], stride=[1 << 20, 1], seed=1)

    rewritten(folder, large_input)
    assert "its tensors take" in refused(folder)


def test_a_graph_that_makes_a_large_tensor_is_refused(folder: Path) -> None:
    def large_result(body: dict[str, Any]) -> None:
        node = {"name": "huge", "op": "call", "target": "aten.full.default", "args": [[1 << 45], 1.0]}
        body["nodes"].insert(0, node)

    rewritten(folder, large_result)
    assert "node huge makes" in refused(folder)


def test_deep_nesting_is_refused(folder: Path) -> None:
    (folder / JSON_FILE).write_text("[" * 100_000 + "]" * 100_000)
    refused(folder)


def test_nodes_that_are_not_there_are_refused(folder: Path) -> None:
    rewritten(folder, lambda body: body["nodes"][0].update(args=[{"node": "later"}]))
    assert "is read before it is there" in refused(folder)


# ---- the commands ----


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "joint"
    assert main(["capture", "seed-example", "-o", str(out)]) == 0
    assert main(["replay", str(out), "--backend", "relaxgrad"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "gradient w: bit-equal" in lines
    assert main(["capture", "seed-example", "--graph", "fused", "-o", str(tmp_path / "fused")]) == 0
    for folder in sorted((tmp_path / "fused").iterdir()):
        assert main(["replay", str(folder)]) == 0
    assert len(list((tmp_path / "fused").iterdir())) >= 2
    capsys.readouterr()
    assert main(["replay", str(tmp_path)]) == 2
    assert "no graph sample in" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["mlp", "cnn-bn", "transformer-encoder", "lstm", "gpt2", "bert", "llama", "t5", "vit", "resnet"],
)
def test_models_of_the_zoo(name: str, tmp_path: Path) -> None:
    for graph in ("joint", "forward", "backward", "fused"):
        assert main(["capture", name, "--graph", graph, "-o", str(tmp_path / graph)]) == 0
    folders = sorted(file.parent for file in tmp_path.rglob(JSON_FILE))
    assert len(folders) > 4
    for folder in folders:
        assert equal(folder), folder
