# SPDX-License-Identifier: Apache-2.0
"""The joint graph: its signature says what things mean, its values are eager's, and the module stays as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relaxgrad.bridge.capture import capture_joint, source_of
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.schemas import GraphKind, InputRole, OutputRole
from relaxgrad.coverage.harness.numbers import float64_run
from tests.accuracy import as_accurate, widened
from tests.bridge.capture.models import Net, net_inputs, run_by_pytorch


def test_the_signature_says_what_everything_means() -> None:
    args, kwargs = net_inputs()
    graph = capture_joint(Net(), args, kwargs)
    assert graph.kind is GraphKind.JOINT
    inputs = {(i.role, i.target): i for i in graph.inputs}
    assert list(inputs) == [
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
        (InputRole.TANGENT, "output['hidden'][0]"),
        (InputRole.TANGENT, "output['out']"),
    ]
    x = inputs[InputRole.INPUT, "args[0]"]
    assert (x.shape, x.stride, x.dtype, x.requires_grad) == (("5", "4"), ("4", "1"), "float32", True)
    assert not inputs[InputRole.INPUT, "kwargs['scale']"].requires_grad
    assert [i.name for i in graph.inputs] == [n.name for n in graph.module.graph.find_nodes(op="placeholder")]
    outputs = [(o.role, o.target) for o in graph.outputs if o.role is not OutputRole.NONE]
    assert outputs == [
        (OutputRole.MUTATION, "norm.running_mean"),
        (OutputRole.MUTATION, "norm.running_var"),
        (OutputRole.MUTATION, "norm.num_batches_tracked"),
        (OutputRole.OUTPUT, "output['hidden'][0]"),
        (OutputRole.OUTPUT, "output['out']"),
        (OutputRole.GRADIENT, "first.weight"),
        (OutputRole.GRADIENT, "first.bias"),
        (OutputRole.GRADIENT, "second.bias"),
        (OutputRole.GRADIENT, "norm.weight"),
        (OutputRole.GRADIENT, "norm.bias"),
        (OutputRole.GRADIENT, "args[0]"),
    ]


def trained(module: nn.Module, x: torch.Tensor, kwargs: dict[str, Any]) -> dict[tuple[OutputRole, str], Any]:
    """What the joint graph of Net returns, by PyTorch's own autograd."""
    torch.manual_seed(3)
    output = module(x, **kwargs)
    (output["hidden"][0].sum() + output["out"].sum()).backward()
    found: dict[tuple[OutputRole, str], Any] = {(OutputRole.MUTATION, name): b for name, b in module.named_buffers()}
    found |= {(OutputRole.GRADIENT, name): p.grad for name, p in module.named_parameters()}
    found[OutputRole.GRADIENT, "args[0]"] = x.grad
    found[OutputRole.OUTPUT, "output['hidden'][0]"] = output["hidden"][0]
    found[OutputRole.OUTPUT, "output['out']"] = output["out"]
    return found


@pytest.mark.parametrize("decompose", ["core_aten", "none"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_values_are_eagers(decompose: str, dynamic: bool) -> None:
    module, (args, kwargs) = Net(), net_inputs()
    graph = capture_joint(module, args, kwargs, decompose=decompose, dynamic=dynamic)
    torch.manual_seed(3)
    found = run_by_pytorch(graph, module, args, kwargs)
    wide = copy.deepcopy(module).double()
    with float64_run():
        exact = trained(wide, args[0].detach().double().requires_grad_(), widened(kwargs))
    wanted = trained(module, args[0], kwargs)
    assert found.keys() == wanted.keys()
    as_accurate(exact, wanted, found)


def test_with_a_loss_the_output_is_the_loss_and_the_targets_are_constants() -> None:
    module, target = nn.Linear(3, 2), torch.randn(4, 2)
    x = torch.randn(4, 3)
    graph = capture_joint(module, (x,), loss=lambda y: F.mse_loss(y, target))
    found = run_by_pytorch(graph, module, (x,), {})
    loss = F.mse_loss(module(x), target)
    loss.backward()
    assert list(found) == [
        (OutputRole.OUTPUT, "output"),
        (OutputRole.GRADIENT, "weight"),
        (OutputRole.GRADIENT, "bias"),
    ]
    torch.testing.assert_close(found[OutputRole.OUTPUT, "output"], loss.detach())
    torch.testing.assert_close(found[OutputRole.GRADIENT, "weight"], module.weight.grad)


class Two(nn.Module):
    """x @ w for two inputs of one batch."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 2))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y) @ self.w


def test_dynamic_sizes_are_symbols_where_the_model_leaves_them_open() -> None:
    graph = capture_joint(Two(), (torch.randn(7, 3), torch.randn(7, 3)), dynamic=True)
    x, y = (i for i in graph.inputs if i.role is InputRole.INPUT)
    assert x.shape is not None
    assert not x.shape[0].isdigit()
    assert x.shape[1] == "3", "the weight fixes it"
    assert x.shape == y.shape
    assert x.shape[0] in next(i.shape or () for i in graph.inputs if i.role is InputRole.TANGENT)
    static = capture_joint(Two(), (torch.randn(7, 3), torch.randn(7, 3)))
    assert [i.shape for i in static.inputs if i.role is InputRole.INPUT] == [("7", "3")] * 2


class Tied(nn.Module):
    """One weight under two names, one buffer under two names, one module under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight
        self.twice = nn.ModuleList([nn.Linear(4, 4)] * 2)
        self.register_buffer("count", torch.zeros(4))
        self.alias = nn.Module()
        self.alias.register_buffer("count", self.count)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        self.alias.count.mul_(2)
        hidden = self.embed(tokens) + self.count
        for layer in self.twice:
            hidden = layer(hidden).tanh()
        return self.head(hidden).log_softmax(-1).sum()


def test_tied_weights_come_once_with_the_whole_gradient() -> None:
    module, tokens = Tied(), torch.tensor([1, 2, 2, 5])
    graph = capture_joint(module, (tokens,))
    assert [i.target for i in graph.inputs if i.role is InputRole.PARAMETER] == [
        "embed.weight",
        "twice.0.weight",
        "twice.0.bias",
    ]
    assert [i.target for i in graph.inputs if i.role is InputRole.BUFFER] == ["count"]
    found = run_by_pytorch(graph, module, (tokens,), {})
    module(tokens).backward()
    torch.testing.assert_close(found[OutputRole.GRADIENT, "embed.weight"], module.embed.weight.grad)
    torch.testing.assert_close(found[OutputRole.GRADIENT, "twice.0.weight"], module.twice[0].weight.grad)  # type: ignore[union-attr]  # a ModuleList
    torch.testing.assert_close(found[OutputRole.MUTATION, "count"], torch.full((4,), 2.0))
    assert module.head.weight is module.embed.weight
    assert module.alias.count is module.count


class Leaves(nn.Module):
    """Sets attributes, writes buffers, draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("seen", torch.zeros(()))
        self.steps = 0
        self.cache: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        self.seen += 1
        self.cache = self.norm(self.layer(x))
        return F.dropout(self.cache)


@pytest.mark.parametrize("training", [True, False])
def test_the_module_is_left_as_it_was(training: bool) -> None:
    module = Leaves().train(training)
    module.norm.eval()
    module.layer.weight.grad = torch.ones(2, 2)
    x = torch.randn(3, 2, requires_grad=True)
    state, buffers = copy.deepcopy(module.state_dict()), dict(module.named_buffers())
    versions = {name: b._version for name, b in buffers.items()}
    random_state, weight = torch.get_rng_state(), module.layer.weight
    capture_joint(module, (x,))
    assert module.steps == 0
    assert module.cache is None
    assert module.training is training
    assert not module.norm.training
    assert module.layer.weight is weight
    assert torch.equal(weight.grad, torch.ones(2, 2)) if weight.grad is not None else False
    assert module.layer.bias.grad is None
    assert x.grad is None
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(b is buffers[name] for name, b in module.named_buffers())
    assert {name: b._version for name, b in module.named_buffers()} == versions
    for name, value in module.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_it_is_left_as_it_was_when_forward_raises() -> None:
    class Raises(Leaves):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            super().forward(x)
            raise ValueError("no good")

    module = Raises()
    with pytest.raises(UserError):
        capture_joint(module, (torch.randn(3, 2),))
    assert module.steps == 0
    assert module.cache is None
    assert module.seen == 0


def test_eval_mode_is_captured_as_eval_mode() -> None:
    graph = capture_joint(Leaves().eval(), (torch.randn(3, 2),))
    assert [o.target for o in graph.outputs if o.role is OutputRole.MUTATION] == ["seen"]


def test_the_nodes_say_their_lines_in_the_backward_too() -> None:
    args, kwargs = net_inputs()
    graph = capture_joint(Net(), args, kwargs)
    calls = [n for n in graph.module.graph.nodes if n.op == "call_function"]
    # The sums of the gradients of a value that is used twice come from no line of the model.
    assert [n.target for n in calls if source_of(n) is None] == [torch.ops.aten.add.Tensor] * 2
    lines = [line for n in calls if (line := source_of(n))]
    assert all(line.file.endswith("models.py") for line in lines)
    mm = [source_of(n) for n in calls if n.target is torch.ops.aten.mm.default]
    assert {line.code.partition(" = ")[0].strip() for line in mm if line} == {
        "hidden",
        'return {"hidden": [hidden], "out": self.second(hidden.relu())}',
    }


def bad(forward: Callable[[Any, torch.Tensor], Any]) -> nn.Module:
    return type("Bad", (nn.Linear,), {"forward": forward})(2, 2)


def raises(self: Any, x: torch.Tensor) -> torch.Tensor:
    raise ValueError("no good")


def wrong_shape(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x @ torch.ones(7, 7)


def branches(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.weight if x.sum() > 0 else x


def reads(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.weight * int(x.sum().item())


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        (raises, r"Bad .*forward raised ValueError at .*test_joint\.py:\d+ \(raise ValueError.*: no good; check"),
        (wrong_shape, r"forward raised RuntimeError at .*test_joint\.py:\d+ \(return x @ torch"),
        (branches, r"depends on the values of a tensor at .*test_joint\.py:\d+ \(return self\.weight if.*torch\.where"),
        (reads, r"depends on the values of a tensor at .*test_joint\.py:\d+ \(return self\.weight \* int"),
    ],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_module_that_cannot_be_captured(forward: Callable[..., Any], says: str, dynamic: bool) -> None:
    with pytest.raises(UserError, match=says) as caught:
        capture_joint(bad(forward), (torch.ones(2, 2),), dynamic=dynamic)
    assert "\n" not in str(caught.value)


def test_a_lazy_module_and_an_unknown_table() -> None:
    with pytest.raises(UserError, match="parameter weight of LazyLinear has no shape yet"):
        capture_joint(nn.LazyLinear(3), (torch.ones(2, 2),))
    with pytest.raises(UserError, match="no decomposition table 'nothing'; there are core_aten, none"):
        capture_joint(nn.Linear(2, 2), (torch.ones(2, 2),), decompose="nothing")


def test_a_mutated_input_is_an_output_and_the_users_tensor_is_not_written() -> None:
    class Writes(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.mul_(2)
            return super().forward(x)

    x = torch.ones(2, 2)
    graph = capture_joint(Writes(2, 2), (x,))
    assert (OutputRole.MUTATION, "args[0]") in [(o.role, o.target) for o in graph.outputs]
    assert torch.equal(x, torch.ones(2, 2))
