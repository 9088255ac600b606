# SPDX-License-Identifier: Apache-2.0
"""The compatibility module for private torch names: each is probed, a missing one is said clearly, and what stands on
them holds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from relaxgrad.bridge import torch_api, torch_probes
from relaxgrad.bridge.capture import decompositions
from relaxgrad.bridge.errors import UserError


def by_pytorch(graphs: list[torch.fx.GraphModule]) -> Callable[..., Any]:
    """A backend whose graphs are kept in `graphs` and run by PyTorch."""

    def compiler(gm: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        graphs.append(gm)
        return torch_api.make_boxed_func(gm.forward)

    return torch_api.aot_backend(compiler, compiler, compiler, decompositions())


def test_every_private_name_has_a_probe() -> None:
    assert torch_api.NAMES.keys() == torch_probes.PROBES.keys()
    assert all(name.used_for for name in torch_api.NAMES.values())


def test_this_torch_passes_every_probe_and_is_left_as_it_was() -> None:
    state, compiling = torch.get_rng_state(), torch.compiler.is_compiling()
    probes = torch_api.probe_all()
    assert [p for p in probes if not p.ok] == []
    assert len(probes) == len(torch_api.NAMES)
    assert all(p.detail for p in probes)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.compiler.is_compiling() is compiling


@pytest.mark.parametrize("key", sorted(torch_api.NAMES))
def test_a_name_that_is_gone_fails_its_probe(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = torch_api.Name("torch._no_such_module:name", "a test")
    monkeypatch.setitem(torch_api.NAMES, key, gone)
    torch_api._core_aten.cache_clear()
    probe = torch_probes.run_probe(torch_api, key)
    assert not probe.ok
    assert "torch._no_such_module" in probe.detail


def test_a_name_that_is_gone_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(torch_api.NAMES, "counters", torch_api.Name("torch:_no_such_name", "counting"))
    with pytest.raises(UserError, match=r"has no torch\._no_such_name, which relaxgrad needs for counting .*doctor"):
        torch_api.dynamo_counters()


@pytest.mark.parametrize(
    ("what", "key"),
    [("real_tensors", "disable_modes"), ("_stack_traces", "graph_capture"), ("_compiling", "compiling")],
)
def test_a_name_that_does_nothing_fails_its_probe(what: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def nothing() -> Iterator[None]:
        yield

    assert torch_probes.run_probe(torch_api, key).ok
    monkeypatch.setattr(torch_api, what, nothing)
    assert not torch_probes.run_probe(torch_api, key).ok


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such"):
        _ = torch_api.no_such


@pytest.mark.parametrize("plain_first", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_retained_graphs_run_backward_again(plain_first: bool, dynamic: bool) -> None:
    config = torch_api.private("functorch_config")
    step = torch.compile(lambda x: (x.sin() * x.exp()).cos().sum(), backend=by_pytorch([]), dynamic=dynamic)
    x = torch.randn(4, requires_grad=True)
    with config.patch(donated_buffer=True):  # the user's own setting, for other backends
        if plain_first:
            step(x).backward()
            x.grad = None
        loss = step(x)
        loss.backward(retain_graph=True)
        once = x.grad
        assert once is not None
        once = once.clone()
        loss.backward(retain_graph=True)
        loss.backward()
        assert config.donated_buffer is True
    assert x.grad is not None
    torch.testing.assert_close(x.grad, 3 * once)
    assert once.abs().max() > 0


def test_mutated_inputs_end_in_copy() -> None:
    graphs: list[torch.fx.GraphModule] = []
    norm = nn.BatchNorm1d(3)
    torch.compile(norm, backend=by_pytorch(graphs))(torch.randn(5, 3))
    copied = [n for n in graphs[0].graph.nodes if n.target is torch.ops.aten.copy_.default]
    assert len(copied) == 3
    assert norm.num_batches_tracked == 1


def test_what_a_compiler_can_ask() -> None:
    seen: dict[str, Any] = {}

    def compiler(gm: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        seen["mode"] = torch_api.tracing_context_fake_mode()
        seen["requires_grad"] = torch_api.input_requires_grad()
        with torch_api.real_tensors():
            seen["sum"] = torch.ones(3).sum().item()
        return torch_api.make_boxed_func(gm.forward)

    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        seen["sources"] = torch_api.input_sources(gm)
        return torch_api.aot_backend(compiler, compiler, compiler, {})(gm, example_inputs)

    class Layer(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    torch.compile(Layer(2, 2), backend=backend)(torch.ones(1, 2))
    assert isinstance(seen["mode"], torch_api.FakeTensorMode)
    assert seen["sum"] == 3
    assert dict(zip(seen["sources"], seen["requires_grad"], strict=True)) == {
        "L['x']": False,
        "L['self']._parameters['weight']": True,
        "L['self']._parameters['bias']": True,
    }
    assert torch_api.tracing_context() is None
    assert torch_api.input_requires_grad() is None


def test_counters_count_graphs_and_breaks() -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    torch_api.dynamo_clear_counters()
    torch.compile(breaks, backend="eager")(torch.ones(2))
    counters = torch_api.dynamo_counters()
    assert counters["stats"]["unique_graphs"] == 2
    assert sum(counters["graph_break"].values()) == 1
    torch_api.dynamo_clear_counters()
    assert torch_api.dynamo_counters().get("stats", {}) == {}
    assert counters["stats"]["unique_graphs"] == 2, "a copy, not a view"


def test_symbolic_numbers() -> None:
    mode = torch_api.symbolic_fake_mode()
    fake = torch_api.fake_tensor(mode, torch.ones(4, 4, 1), True)
    fixed = torch_api.fake_tensor(mode, torch.ones(4, 2), False)
    size = fake.shape[0]
    assert torch_api.is_symint(size)
    assert not torch_api.is_symint(4)
    assert torch_api.expr_of(size + 1) == torch_api.expr_of(size) + 1
    assert torch_api.expr_of(7) == 7
    assert torch_api.hint_of(size * 2) == 8
    assert torch_api.hint_of(7) == 7
    assert str(fake.shape[1]) == str(size), "equal sizes share a symbol"
    assert fake.shape[2] == 1
    assert [torch_api.has_symbols(x) for x in (fake, fixed, size, 3, [1, size], "s")] == [
        True, False, True, False, True, False,
    ]  # fmt: skip


LAYERS: list[tuple[type[nn.RNNBase], dict[str, Any]]] = [
    (nn.LSTM, {"batch_first": True}),
    (nn.LSTM, {"bidirectional": True}),
    (nn.LSTM, {"proj_size": 3}),
    (nn.GRU, {"bidirectional": True, "batch_first": True}),
    (nn.RNN, {"nonlinearity": "relu"}),
]


@pytest.mark.parametrize(("layer", "options"), LAYERS)
@pytest.mark.parametrize("input_needs_grad", [False, True])
def test_recurrent_layers_train_with_the_dropout_between_them(
    layer: Callable[..., nn.Module], options: dict[str, Any], input_needs_grad: bool
) -> None:
    module = layer(4, 6, num_layers=3, dropout=0.4, **options)
    x = torch.randn(2, 2, 4, requires_grad=input_needs_grad)
    graphs: list[torch.fx.GraphModule] = []

    def step(run: Callable[..., Any]) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
        torch.manual_seed(1)
        output = run(x)[0]
        gradients = torch.autograd.grad(output.square().sum(), list(module.parameters()))
        return output.detach(), list(gradients), torch.get_rng_state()

    eager = step(module)
    with torch_api.dynamo_config_patch(allow_rnn=True):
        compiled = step(torch.compile(module, backend=by_pytorch(graphs)))
    assert len(graphs) == 2
    torch.testing.assert_close(compiled[0], eager[0])
    for one, other in zip(compiled[1], eager[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert torch.equal(compiled[2], eager[2]), "another number of random draws"
    assert sum(n.target is torch.ops.aten.bernoulli.p for n in graphs[0].graph.nodes) == 2
    torch.manual_seed(2)
    assert not torch.equal(module(x)[0], eager[0]), "the dropout that this test is about"


def test_recurrent_layers_in_eval_mode_drop_nothing() -> None:
    module = nn.GRU(4, 6, num_layers=2, dropout=0.4).eval()
    graphs: list[torch.fx.GraphModule] = []
    x = torch.randn(3, 5, 4)
    with torch_api.dynamo_config_patch(allow_rnn=True):
        output = torch.compile(module, backend=by_pytorch(graphs))(x)[0]
    torch.testing.assert_close(output, module(x)[0])
    assert not any(n.target is torch.ops.aten.bernoulli.p for n in graphs[0].graph.nodes)
