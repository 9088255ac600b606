# SPDX-License-Identifier: Apache-2.0
"""The training comparison: right runs are `trained`, and each planted fault is found and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from relaxgrad.bridge.errors import UnsupportedOps, UserError
from relaxgrad.bridge.kinds import Reason, ReasonKind
from relaxgrad.coverage.harness.train_record import Status, TrainRecord
from relaxgrad.coverage.harness.training import train_model
from tests.coverage.harness.standin import Fault, StandIn


def train(model: str = "mlp", steps: int = 4, **faults: Any) -> TrainRecord:
    return train_model(model, steps, 0, StandIn(**faults))


def test_a_right_run_is_trained() -> None:
    events: list[dict[str, Any]] = []
    record = train_model("cnn-bn", 5, 0, StandIn(), events.append)
    assert (record.status, record.reason) == (Status.TRAINED, "")
    assert record.graphs == {"forward": 1, "backward": 1, "inference": 0}
    assert [graph["runs"] for graph in record.graph_details] == [5, 5]
    assert (record.graph_breaks, record.recompiles) == ({}, 0)
    assert record.gradients.compared == 10
    assert record.gradients.failed == []
    assert record.gradients.worst_ratio is not None
    assert record.buffers.compared == 6  # mean, variance and count of two batch norms
    assert record.loss_difference == pytest.approx(0, abs=1e-5)
    assert len(record.losses_eager) == len(record.losses_compiled) == 5
    assert record.losses_eager[-1] < record.losses_eager[0]
    assert record.time_eager is not None
    assert record.time_eager.rounds == 2
    assert [e["step"] for e in events if e["event"] == "step"] == [1, 2, 3, 4, 5]
    json.dumps(record.to_json(), allow_nan=False)


def test_the_seed_example_has_two_graphs_and_its_loss_outside() -> None:
    record = train("seed-example", steps=2)
    assert record.status is Status.TRAINED
    assert [graph["kind"] for graph in record.graph_details] == ["forward", "backward"]


def test_what_stays_in_eager_did_not_train() -> None:
    record = train(skip=True)
    assert record.status is Status.FAILED
    assert "no forward graph was compiled" in record.reason


def test_a_graph_that_falls_back_whole_did_not_train() -> None:
    record = train(in_aten=True)
    assert record.status is Status.FAILED
    assert "no forward graph was compiled" in record.reason


def on(index: int, change: Any) -> Fault:
    """A fault on the `index`th floating-point tensor of more than one element that a graph returns."""

    def fault(outputs: list[Any]) -> list[Any]:
        places = [i for i, t in enumerate(outputs) if isinstance(t, Tensor) and t.is_floating_point() and t.numel() > 1]
        outputs[places[index]] = change(outputs[places[index]])
        return outputs

    return fault


def one_element(gradient: Tensor) -> Tensor:
    changed = gradient.clone()
    changed.view(-1)[0] += 1e-4 * gradient.abs().max()
    return changed


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda g: g * 0.999, "error too large"),
        (one_element, "error too large"),
        (lambda g: g * 0, "all zero"),
        (lambda g: g * float("nan"), "NaN or infinity"),
        (lambda g: None, "missing"),
    ],
)
@pytest.mark.parametrize("index", [0, -1])
def test_a_wrong_gradient_is_found(change: Any, says: str, index: int) -> None:
    record = train(backward_fault=on(index, change), steps=2)
    assert record.status is Status.WRONG
    assert record.reason.startswith("gradient of network.")
    assert says in record.reason
    assert len(record.gradients.failed) == 1
    assert (len(record.gradients.missing) == 1) == (says == "missing")


def test_a_wrong_loss_is_found() -> None:
    """The gradients are right, the value reported is not."""

    def fault(outputs: list[Any]) -> list[Any]:
        return [outputs[0] * 1.01, *outputs[1:]]

    record = train(forward_fault=fault, steps=2)
    assert record.status is Status.WRONG
    assert "losses differ from eager's by up to 1.0e-02" in record.reason


def test_other_masks_than_eagers_are_found() -> None:
    """A graph that draws one number more than eager has other dropout masks from the second step on."""

    def fault(outputs: list[Any]) -> list[Any]:
        torch.rand(())
        return outputs

    record = train(forward_fault=fault, steps=3)
    assert record.gradients.failed == []
    assert record.status is Status.WRONG
    assert "losses differ" in record.reason


class Raises(StandIn):
    def compile(self, module: Any) -> Any:
        def compiled(*args: Any, **kwargs: Any) -> Any:
            reason = Reason(ReasonKind.NO_CONVERTER, "aten.sort.stable", "sort", dtypes=("f32",), shapes=(("4",),))
            raise RuntimeError("the compiler failed\nwith more lines") from UnsupportedOps([reason, reason])

        return compiled


def test_a_compiler_that_refuses_gives_its_reasons() -> None:
    record = train_model("mlp", 2, 0, Raises())
    assert record.status is Status.FAILED
    assert record.reason.startswith("UnsupportedOps: 2 ops of this graph would fall back to ATen")
    assert record.reasons == ["aten.sort.stable(f32[4]): no converter"] * 2


FILE = """\
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.unused = nn.Parameter(torch.zeros(2))
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.linear(x))

class Broken(Model):
    def forward(self, x):
        return self.linear(x).view(7)

class Breaks(Model):
    def forward(self, x):
        y = self.linear(x).relu()
        torch._dynamo.graph_break()
        return self.linear(y)

inputs = torch.randn(2, 3)
target = torch.randn(2, 3)

def good():
    return Model(), torch.randn(8, 3), lambda y: nn.functional.mse_loss(y, torch.ones(8, 3))
def not_repeatable():
    torch.seed()
    return Model(), torch.randn(8, 3)
def closes_over_the_module():
    model = Model()
    return model, inputs, lambda y: y.square().mean() + model.unused.square().sum() + model.linear.weight.square().sum()
def broken():
    return Broken(), inputs
def breaks():
    return Breaks(), inputs
def loss_raises():
    return Model(), inputs, lambda y: y.no_such_method()
def loss_not_scalar():
    return Model(), inputs, lambda y: y - target
def loss_not_tensor():
    return Model(), inputs, lambda y: 1.0
def loss_detached():
    return Model(), inputs, lambda y: y.detach().sum()
def loss_nan():
    return Model(), inputs * float("nan")
def backward_raises():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()
        @staticmethod
        def backward(ctx, g):
            raise ValueError("no way back")
    return Model(), inputs, lambda y: Bad.apply(y).sum()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize("function", ["good", "not_repeatable"])
def test_a_users_own_model(file: Path, function: str) -> None:
    record = train(f"{file}:{function}")
    assert (record.status, record.reason) == (Status.TRAINED, "")
    assert record.gradients.compared == 2  # the unused parameter has no gradient in eager either
    assert record.parameters == 14


def test_a_loss_that_closes_over_its_module_sees_the_right_copy(file: Path) -> None:
    record = train(f"{file}:closes_over_the_module")
    assert record.gradients.missing == []
    # `unused` is zero, and so is the gradient of its square: nothing was compared there, and that is said
    assert record.gradients.failed == ["unused: nothing to compare (zeros in eager as well)"]


def test_graph_breaks_are_counted(file: Path) -> None:
    record = train(f"{file}:breaks")
    assert sum(record.graph_breaks.values()) >= 1
    assert record.graphs["forward"] >= 2


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("broken", r"the module raised RuntimeError: shape '\[7\]' is invalid .* at \S+mine\.py:16 \(return self"),
        ("loss_raises", r"the loss raised AttributeError: .* at \S+mine\.py:\d+ "),
        ("loss_not_scalar", r"the loss is a tensor of shape \(2, 3\); it must be one number"),
        ("loss_not_tensor", r"the loss is a float"),
        ("loss_detached", r"does not depend on any trainable parameter"),
        ("loss_nan", r"the loss is nan in eager"),
        ("backward_raises", r"the backward pass raised ValueError: no way back at \S+mine\.py:\d+"),
    ],
)
def test_a_model_that_does_not_run_in_eager_is_the_users_error(file: Path, function: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        train(f"{file}:{function}")
    assert "\n" not in str(caught.value)


def test_no_steps_is_refused() -> None:
    with pytest.raises(UserError, match="at least 1"):
        train(steps=0)
