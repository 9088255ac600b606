# SPDX-License-Identifier: Apache-2.0
"""Graph samples: what is saved is loaded again, in another process too; what is none is refused and runs nothing."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from relaxgrad.bridge.capture import capture_joint, capture_pair
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.schemas import CapturedGraph
from relaxgrad.cli.main import main
from relaxgrad.coverage import samples
from relaxgrad.coverage.samples.groups import fused_groups, group_graph, values_of
from relaxgrad.coverage.samples.load import LARGEST_JSON
from relaxgrad.coverage.samples.schema import JSON_FILE, TENSOR_FILE, Sample, digest, read, written
from relaxgrad.coverage.samples.values import at_path, joint_inputs


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


def test_a_source_line_with_a_tab_is_kept_without_it(tmp_path: Path) -> None:
    graph = capture_joint(nn.Linear(3, 2), (torch.randn(2, 3),))
    for node in graph.module.graph.nodes:
        node.stack_trace = 'File "/home/model.py", line 3, in forward\n    return\tself.linear(x)\n'
    inputs = joint_inputs(graph, nn.Linear(3, 2), (torch.randn(2, 3),), {})
    sample = samples.save(graph, inputs, tmp_path)
    assert any("return?self.linear" in node.source for node in sample.nodes)
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


def call(target: str, *args: Any, name: str = "new", **kwargs: Any) -> dict[str, Any]:
    """A node as JSON."""
    return {"name": name, "op": "call", "target": target, "args": list(args), "kwargs": kwargs}


def insert(*nodes: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["nodes"].__setitem__(slice(0, 0), nodes)


WEIGHT = {"node": "primals_1"}


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (call("os.system", "id"), "is no op that a sample may call"),
        (call("builtins.eval.x", "1"), "is no op that a sample may call"),
        (call("torch.load.default", "x"), "is no op that a sample may call"),
        (call("aten.mm"), "is no op that a sample may call"),
        (call("aten.__class__.mro"), "is no op that a sample may call"),
        (call("aten.from_file.default", "/etc/passwd"), "reads a file"),
        (call("aten.from_file.out", "/etc/passwd", out=WEIGHT), "writes into an argument"),
        (call("aten.add_.Tensor", WEIGHT, 1), "writes into an argument"),
        (call("aten.set_.default", WEIGHT), "writes into an argument"),
        (call("aten.resize_.default", WEIGHT, [1 << 20]), "writes into an argument"),
        (call("aten._print.default", "printed by a sample"), "returns something else than tensors"),
        (call("aten.item.default", WEIGHT), "returns something else than tensors"),
        (call("aten.size.default", WEIGHT), "returns something else than tensors"),
        (call("aten.geqrf.default", WEIGHT), "its graph cannot run"),  # torch would run it on zeros to know its shape
        (call("aten.to_sparse.default", WEIGHT), "its graph cannot run"),
        (call("aten.as_strided.default", WEIGHT, [1000], [1], 0), "reads past the end of its memory"),
        (call("aten.as_strided.default", WEIGHT, [2], [1], 5), "reads past the end of its memory"),
        (call("aten.mul.Tensor", WEIGHT, "text"), "its graph cannot run"),
        ({"name": "new", "op": "item", "target": "getitem", "args": [WEIGHT, "key"]}, "an item is asked of"),
        ({"name": "new", "op": "item", "target": "getitem", "args": [[1, 2], 0]}, "an item is asked of"),
        ({"name": "new", "op": "constant", "target": "absent"}, "absent"),
    ],
    ids=lambda value: str(value.get("target", "")) if isinstance(value, dict) else "",
)
def test_only_ops_that_compute_are_called(
    node: dict[str, Any], reason: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rewritten(folder, insert(node))
    assert reason in refused(folder)
    assert capfd.readouterr().out == ""


def test_a_graph_writes_to_its_inputs_alone(folder: Path) -> None:
    copy = call("aten.copy_.default", {"node": "other"}, WEIGHT)
    rewritten(folder, insert(call("aten.neg.default", WEIGHT, name="other"), copy))
    assert "a sample may only copy_ into its inputs" in refused(folder)


@pytest.mark.parametrize("key", ["other = 1)\n    import os; os.mkdir('harm')\n    (x", "x", "__import__('os')"])
def test_an_argument_is_no_source_code(key: str, folder: Path) -> None:
    rewritten(folder, insert(call("aten.mul.Tensor", WEIGHT, **{key: 1})))
    assert "aten.mul.Tensor has no argument" in refused(folder)


@pytest.mark.parametrize("name", ["a b", "a=1", "x\ny", "é", "lambda", "None", "1a", "", "a" * 300, "primals_1"])
def test_a_name_is_no_source_code(name: str, folder: Path) -> None:
    rewritten(folder, insert(call("aten.neg.default", WEIGHT, name=name)))
    refused(folder)


@pytest.mark.parametrize("name", ["forward", "graph", "code", "training", "_parameters", "__class__"])
def test_a_constant_takes_no_place_in_the_module(name: str, folder: Path) -> None:
    def constant(body: dict[str, Any]) -> None:
        body["constants"] = {name: {"dtype": "float32", "size": [1], "stride": [1], "seed": 1}}
        body["nodes"].insert(0, {"name": name, "op": "constant", "target": name})

    rewritten(folder, constant)
    refused(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.update({"\x1b[2Jkey": 1}),
        lambda body: body["outputs"][0].update(target="\x1b]0;title\x07"),
        lambda body: body["nodes"][0].update(target="aten.\x1b[31m.default"),
        lambda body: body.update(part="first\nsecond"),
        lambda body: body.update(torch="\u202ereversed"),
        lambda body: body["inputs"][0].update(role="\ud800"),
        lambda body: body["inputs"][0]["tensor"].update(dtype="\x1b[2J"),
    ],
)
def test_a_sample_commands_no_terminal(change: Callable[[dict[str, Any]], None], folder: Path) -> None:
    rewritten(folder, change)
    assert refused(folder).isprintable()


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "1" + "0" * 5000])
def test_numbers_that_json_has_not(number: str, folder: Path) -> None:
    text = (folder / JSON_FILE).read_text()
    (folder / JSON_FILE).write_text(text.replace('"args": [', f'"args": [{number},', 1))
    assert "is no JSON" in refused(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda body: body["outputs"].pop(), "it has 3 outputs and its graph returns 4"),
        (lambda body: body["returned"].append({"node": "later"}), "is read before it is there"),
        (lambda body: (body["returned"].append("text"), body["outputs"].append(body["outputs"][0])), "it returns what"),
        (lambda body: body.update(written={"primals_1": body["outputs"][0]}), "its graph writes to nothing"),
        (lambda body: body.update(seed=1 << 80), "seed: "),
        (lambda body: body["inputs"][0]["tensor"].update(dtype="qint8"), "no dtype of a sample"),
        (lambda body: body["inputs"][0]["tensor"].update(dtype="load"), "no dtype of a sample"),
        (lambda body: body["inputs"][0]["tensor"].update(dtype="bool"), "a bool is neither 0 nor 1"),
        (lambda body: body["inputs"][0]["tensor"].update(start=60), "a tensor ends at byte"),
        (lambda body: body["inputs"][0]["tensor"].update(size=[0, 1 << 80], stride=[1, 1]), "unpack"),
        (lambda body: body["inputs"][0]["tensor"].update(size=[-1, 2]), "without a place"),
        (lambda body: body["inputs"][0]["tensor"].update(size=[1 << 40], stride=[0]), "node primals_1 makes"),
    ],
)
def test_what_does_not_fit_together(change: Callable[[dict[str, Any]], Any], reason: str, folder: Path) -> None:
    rewritten(folder, lambda body: change(body) and None)
    assert reason in refused(folder)


def test_bombs_are_refused_before_they_take_memory(folder: Path) -> None:
    def large_input(body: dict[str, Any]) -> None:
        tensor = body["inputs"][0]["tensor"]
        tensor.pop("start")
        tensor.update(size=[1 << 40, 1 << 20], stride=[1 << 20, 1], seed=1)

    rewritten(folder, large_input)
    assert "its tensors take" in refused(folder)

    def drawn_wide(body: dict[str, Any]) -> None:  # 2 GiB of bool, drawn as 16 GiB of int64
        tensor = body["inputs"][0]["tensor"]
        tensor.update(dtype="bool", size=[1 << 31], stride=[1])

    rewritten(folder, drawn_wide)
    assert "its tensors take" in refused(folder)


def test_a_graph_that_makes_a_large_tensor_is_refused(folder: Path) -> None:
    def large_result(body: dict[str, Any]) -> None:
        node = {"name": "huge", "op": "call", "target": "aten.full.default", "args": [[1 << 45], 1.0]}
        body["nodes"].insert(0, node)

    rewritten(folder, large_result)
    assert "node huge makes" in refused(folder)


def test_a_graph_that_holds_many_large_tensors_is_refused(folder: Path) -> None:
    def many(body: dict[str, Any]) -> None:
        for number in range(12):
            body["nodes"].insert(0, call("aten.full.default", [1 << 28], 1.0, name=f"f{number}"))
            body["returned"].append({"node": f"f{number}"})
            body["outputs"].append(body["outputs"][0])

    rewritten(folder, many)
    assert "it holds 8,589" in refused(folder)


def test_the_same_tensors_one_after_the_other_are_not(folder: Path) -> None:
    nodes = [call("aten.full.default", [1 << 28], 1.0, name=f"f{number}") for number in range(12)]
    rewritten(folder, insert(*nodes))
    assert len(samples.load(folder).sample.nodes) > 12


def test_loading_runs_no_kernel(folder: Path) -> None:
    """torch runs an op that has no rule for shapes on zeros, however large: a minute and gigabytes for this one."""
    large = call("aten.full.default", [1 << 14, 1 << 14], 1.0, name="large")
    rewritten(folder, insert(large, call("aten.geqrf.default", {"node": "large"})))
    start = time.perf_counter()
    assert "its graph cannot run" in refused(folder)
    assert time.perf_counter() - start < 5


def test_a_file_of_more_than_its_share_is_not_read(folder: Path) -> None:
    with open(folder / JSON_FILE, "r+b") as file:
        file.truncate(LARGEST_JSON + 1)  # sparse
    assert "is no plain file of at most" in refused(folder)
    (folder / JSON_FILE).unlink()
    os.mkfifo(folder / JSON_FILE)
    assert "is no plain file of at most" in refused(folder)


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

    def other_bits(body: dict[str, Any]) -> None:
        given = next(o for o in body["outputs"] if o.get("sha256"))
        given["sha256"] = "0" * len(given["sha256"])

    rewritten(out, other_bits)
    assert main(["replay", str(out)]) == 1
    assert "not the bits that were saved" in capsys.readouterr().out
    assert main(["replay", str(tmp_path)]) == 2
    assert "no graph sample in" in capsys.readouterr().err
