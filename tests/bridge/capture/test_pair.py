# SPDX-License-Identifier: Apache-2.0
"""The forward and backward graphs as torch.compile hands them over, with their roles and the user's names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from relaxgrad.bridge.capture import capture_pair
from relaxgrad.bridge.capture.signature import source_meaning
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.schemas import CapturedGraph, GraphKind, InputRole, OutputRole
from tests.bridge.capture.models import Net, net_inputs


def kinds(graphs: list[CapturedGraph]) -> list[GraphKind]:
    return [graph.kind for graph in graphs]


def test_the_roles_of_a_pair() -> None:
    args, kwargs = net_inputs()
    forward, backward = capture_pair(Net(), args, kwargs)
    assert kinds([forward, backward]) == [GraphKind.FORWARD, GraphKind.BACKWARD]
    assert {(i.role, i.target) for i in forward.inputs} == {
        (InputRole.PARAMETER, "first.weight"),
        (InputRole.PARAMETER, "first.bias"),
        (InputRole.PARAMETER, "second.bias"),
        (InputRole.PARAMETER, "norm.weight"),
        (InputRole.PARAMETER, "norm.bias"),
        (InputRole.BUFFER, "norm.running_mean"),
        (InputRole.BUFFER, "norm.running_var"),
        (InputRole.BUFFER, "norm.num_batches_tracked"),
        (InputRole.INPUT, "args[0]"),
        (InputRole.INPUT, "kwargs['scale']"),
    }
    needing = {i.target for i in forward.inputs if i.requires_grad}
    assert needing == {i.target for i in forward.inputs if i.role is InputRole.PARAMETER} | {"args[0]"}
    assert [o.role for o in forward.outputs[:2]] == [OutputRole.OUTPUT] * 2
    assert {o.role for o in forward.outputs[2:]} == {OutputRole.SAVED}
    gradients = {o.target for o in backward.outputs if o.role is OutputRole.GRADIENT}
    assert gradients == needing
    assert {o.role for o in backward.outputs} == {OutputRole.GRADIENT, OutputRole.NONE}
    roles = [i.role for i in backward.inputs]
    assert roles.count(InputRole.TANGENT) == 2
    assert InputRole.SAVED in roles
    assert InputRole.UNKNOWN not in roles
    saved = [o.name for o in forward.outputs if o.role is OutputRole.SAVED]
    passed = [i.name for i in backward.inputs if i.role is not InputRole.TANGENT]
    assert sorted(passed) == sorted(s for s in saved if s), "what one saves the other takes"
    assert all(i.shape == ("5", "4") for i in backward.inputs if i.role is InputRole.TANGENT)


def test_dynamic_sizes_are_symbols_and_inputs_of_their_own() -> None:
    args, kwargs = net_inputs()
    forward, backward = capture_pair(Net(), args, kwargs, dynamic=True)
    for graph in (forward, backward):
        assert InputRole.SIZE in [i.role for i in graph.inputs]
        assert InputRole.UNKNOWN not in [i.role for i in graph.inputs]
    x = next(i for i in forward.inputs if i.target == "args[0]")
    assert x.shape is not None
    assert not x.shape[0].isdigit()


def test_a_loss_is_part_of_the_graphs() -> None:
    target = torch.randn(4, 2)
    forward, backward = capture_pair(nn.Linear(3, 2), (torch.randn(4, 3),), loss=lambda y: F.mse_loss(y, target))
    assert [o.shape for o in forward.outputs if o.role is OutputRole.OUTPUT] == [()]
    assert {o.target for o in backward.outputs if o.role is OutputRole.GRADIENT} == {"weight", "bias"}


class Breaks(nn.Module):
    """Two parts with a graph break between them; its submodule has the name that capture uses for its own."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(3, 3)
        self.after = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.module(x).tanh()
        y = y * int(y.detach().abs().sum().item() > 0)
        return self.after(y)


def test_a_graph_break_gives_two_pairs() -> None:
    graphs = capture_pair(Breaks(), (torch.randn(2, 3),))
    assert sorted(kinds(graphs)) == [GraphKind.BACKWARD] * 2 + [GraphKind.FORWARD] * 2
    parameters = {i.target for g in graphs for i in g.inputs if i.role is InputRole.PARAMETER}
    assert parameters == {"module.weight", "module.bias", "after.weight", "after.bias"}


def test_captures_do_not_change_later_captures() -> None:
    for _ in range(10):  # more than Dynamo's limit of recompiles
        assert len(capture_pair(Breaks(), (torch.randn(2, 3),))) == 4


def test_nothing_that_needs_a_gradient_gives_an_inference_graph() -> None:
    module = nn.Linear(3, 2).requires_grad_(False)
    (graph,) = capture_pair(module, (torch.randn(4, 3),))
    assert graph.kind is GraphKind.INFERENCE
    assert [o.role for o in graph.outputs] == [OutputRole.OUTPUT]


def test_the_module_is_left_as_it_was() -> None:
    class Leaves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)
            self.steps = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            return F.dropout(self.norm(x.mul_(2)))

    module, x = Leaves(), torch.ones(4, 3)
    fired: list[Any] = []
    module.norm.weight.register_post_accumulate_grad_hook(fired.append)
    module.norm.bias.grad = torch.full((3,), 7.0)
    state = torch.get_rng_state()
    assert len(capture_pair(module, (x,))) == 2
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, torch.ones(4, 3))
    assert module.steps == 0
    assert module.norm.num_batches_tracked == 0
    assert torch.equal(module.norm.running_mean, torch.zeros(3)) if module.norm.running_mean is not None else False
    assert module.norm.weight.grad is None
    assert torch.equal(module.norm.bias.grad, torch.full((3,), 7.0))
    assert fired == []


def test_an_lstm_is_traced() -> None:
    graphs = capture_pair(nn.LSTM(3, 2), (torch.randn(2, 1, 3),))
    assert kinds(graphs) == [GraphKind.FORWARD, GraphKind.BACKWARD]


def test_checkpointed_dropout_passes_its_random_state() -> None:
    class Checkpointed(nn.Linear):
        def part(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(super().forward(x)).tanh()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.part, x, use_reentrant=False)  # type: ignore[no-any-return]  # untyped in torch

    forward, backward = capture_pair(Checkpointed(3, 3), (torch.randn(2, 3),))
    # torch drops the descriptors of such a graph's outputs: what they mean is not known, and not guessed.
    assert {o.role for o in forward.outputs} == {OutputRole.UNKNOWN, OutputRole.RNG}
    assert [i.role for i in backward.inputs].count(InputRole.RNG) == 1
    assert (forward.non_core_ops, backward.non_core_ops) == ({"run_and_save_rng_state": 1}, {"run_with_rng_state": 1})


class Bad(nn.Linear):
    def __init__(self, how: str):
        super().__init__(2, 2)
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if self.how == "raises":
            raise ValueError("no good")
        return y @ torch.ones(7, 7)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("raises", r"forward raised ValueError at .*test_pair\.py:\d+ \(raise ValueError.*: no good; check"),
        ("shape", r"forward raised RuntimeError at .*test_pair\.py:\d+ \(return y @ torch.*same reduction dim"),
    ],
)
def test_a_module_that_raises(how: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        capture_pair(Bad(how), (torch.ones(2, 2),))
    assert "\n" not in str(caught.value)


def test_a_module_with_nothing_to_compile() -> None:
    class Returns(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    with pytest.raises(UserError, match=r"found nothing to compile in Returns\.forward"):
        capture_pair(Returns(), (torch.ones(2, requires_grad=True),))


@pytest.mark.parametrize(
    ("source", "meaning"),
    [
        ("L['self']._modules['fc']._parameters['weight']", (InputRole.PARAMETER, "fc.weight")),
        ("L['self']._modules['0']._buffers['mean']", (InputRole.BUFFER, "0.mean")),
        ("L['self']._parameters['w']", (InputRole.PARAMETER, "w")),
        ("L['x']", (InputRole.INPUT, "L['x']")),
        ("L['self']._modules['fc'].cache", (InputRole.INPUT, "L['self']._modules['fc'].cache")),
        ("L['d']['_parameters']", (InputRole.INPUT, "L['d']['_parameters']")),
    ],
)
def test_access_paths(source: str, meaning: tuple[InputRole, str]) -> None:
    assert source_meaning(source) == meaning
