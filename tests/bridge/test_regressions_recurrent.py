# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers under plain torch.compile: traced for this backend, with eager's dropout masks, and for no other."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import nn

from relaxgrad.bridge import backend as bridge
from relaxgrad.bridge.kinds import Kind
from tests.bridge.regressions import Compile, agree, grads

LAYERS: dict[str, Any] = {
    "lstm": lambda: nn.LSTM(4, 5),
    "gru": lambda: nn.GRU(4, 5, batch_first=True),
    "rnn": lambda: nn.RNN(4, 5, nonlinearity="relu"),
    "two_layers_both_ways_without_bias": lambda: nn.GRU(
        4, 3, num_layers=2, dropout=0.3, bidirectional=True, bias=False
    ),
    "projected": lambda: nn.LSTM(4, 6, proj_size=3),
}


@pytest.mark.parametrize("name", LAYERS)
def test_trains_as_eager(name: str) -> None:
    def program(compile: Compile) -> dict[str, Any]:
        layer = LAYERS[name]()
        c = compile(layer)
        x = torch.randn(2, 2, 4, requires_grad=True)
        out: dict[str, Any] = {}
        for k in range(2):
            y, state = c(x)
            final = state if isinstance(state, tuple) else (state,)
            ((y * torch.arange(float(y.shape[-1]))).sum() + sum(s.sum() for s in final)).backward()
            out[f"y{k}"], out[f"state{k}"] = y, state
        return {**out, "x": x.grad, **grads(layer), "rng": torch.get_rng_state()}

    records = agree(program)
    assert len(records) == 2
    assert sum(r.calls.get(Kind.NATIVE, 0) for r in records) > 0


def test_given_state_and_packed_sequences() -> None:
    def program(compile: Compile) -> dict[str, Any]:
        layer = nn.GRU(4, 5)
        c = compile(layer)
        x = torch.randn(3, 2, 4)
        h = torch.randn(1, 2, 5, requires_grad=True)
        y, last = c(x, h)
        (y.sum() + last.pow(2).sum()).backward()
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2]))
        z, _ = nn.utils.rnn.pad_packed_sequence(c(packed)[0])
        z.sum().backward()
        return {"y": y, "last": last, "z": z, "h": h.grad, **grads(layer)}

    agree(program)


def test_a_language_model_of_varying_length() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.lstm, self.head = nn.Embedding(9, 4), nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 9)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.lstm(self.table(ids))[0])

    def program(compile: Compile) -> dict[str, Any]:
        net = Net()
        c = compile(net)
        out: dict[str, Any] = {}
        for n in (2, 3, 5):
            ids = torch.arange(n * 2).view(n, 2) % 9
            y = c(ids)
            nn.functional.cross_entropy(y.flatten(0, 1), ids.flatten()).backward()
            out[f"{n}"] = y
        return {**out, **grads(net)}

    agree(program)


def test_other_backends_still_break_at_recurrent_layers() -> None:
    graphs: list[Any] = []

    def other(gm: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    layer = nn.GRU(2, 2)
    torch.compile(layer, backend=other)(torch.ones(1, 1, 2))
    assert not graphs
    torch.compiler.reset()  # Dynamo remembers that it gave up on this code
    with bridge.record_graphs() as records:
        torch.compile(layer, backend="relaxgrad")(torch.ones(1, 1, 2))
    assert [r.kind for r in records if r.runs] == ["forward"]  # the layer as a whole
    torch.compiler.reset()
    torch.compile(layer, backend=other)(torch.ones(1, 1, 2))
    assert not graphs
    assert torch._dynamo.config.allow_rnn is False


def test_the_context_of_a_call_is_cheap() -> None:
    context = bridge.relaxgrad.backend_ctx_ctor
    best = min(_seconds(context) for _ in range(5))
    assert best < 20e-6


def _seconds(context: Any) -> float:
    start = time.perf_counter()
    for _ in range(1000):
        with context():
            pass
    return (time.perf_counter() - start) / 1000
