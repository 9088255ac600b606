# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers in training: Dynamo made to trace them, and AOTAutograd to take them apart as they train.

Both are worked around here because no public option of torch does; see the two notes. torch_api.py, which alone knows
private names, hands in the parts of torch that are needed.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch

from . import scoped


@contextlib.contextmanager
def decompositions(registry: Any) -> Iterator[None]:
    """Makes AOTAutograd trace `nn.LSTM`, `nn.GRU` and `nn.RNN` as they train. `registry`: torch's decompositions.

    Note [Recurrent layers]
    AOTAutograd takes recurrent layers apart while it traces, with functions that no table can replace. In torch 2.13
    these (1) lose the dropout between layers (`_rnn_helper` compares `num_layers < i - 1`, which is never true), and
    (2) choose the inference kernel `mkldnn_rnn_layer` whenever the *input* needs no gradient, though the weights do;
    its graph cannot be run for training. Here the helper runs one layer at a time with dropout between them, in ATen's
    order, and the kernel is not chosen.
    """
    layer = registry.one_layer_lstm
    with scoped.replaced(
        registry,
        _rnn_helper=lambda helper: functools.partial(_rnn_layers, helper),
        select_one_layer_lstm_function=lambda _: lambda *_: layer,
    ):
        yield


class TracesRecurrentLayers:
    """A context for each call of a compiled function, in which Dynamo traces `nn.LSTM`, `nn.GRU` and `nn.RNN`.

    Note [Recurrent layers and Dynamo]
    Dynamo breaks the graph at a recurrent layer unless `allow_rnn` is set while it traces. Set globally it would send
    every other backend into the faults of Note [Recurrent layers]. Dynamo enters a backend's `backend_ctx_ctor()`
    around each call of what it compiled, hence around tracing; its wrapper of a backend hides that attribute. Options
    are context variables since torch 2.12: setting one takes a tenth of a microsecond and is seen by this thread only.
    """

    __slots__ = ("_token",)

    #: What is behind `allow_rnn`; of the class, because a compiled module and its backend can be copied and it cannot.
    option: ClassVar[Any]

    def __enter__(self) -> None:
        self._token = self.option.set(True)

    def __exit__(self, *_: object) -> None:
        self.option.reset(self._token)


class _PlainOption:
    """An option of torch 2.11, which all threads share: on while any call is in flight, then as it was before."""

    def __init__(self, option: Any):
        self._option = option
        self._lock = threading.Lock()
        self._calls = 0
        self._before: Any = None

    def set(self, value: object) -> None:
        with self._lock:
            if not self._calls:
                self._before = self._option.user_override
                self._option.user_override = value
            self._calls += 1

    def reset(self, _: None) -> None:
        with self._lock:
            self._calls -= 1
            if not self._calls:
                self._option.user_override = self._before


def trace(backend: Any, wrapper: Any, allow_rnn: Any) -> None:
    """Has Dynamo trace recurrent layers for this backend and no other: see Note [Recurrent layers and Dynamo].

    `wrapper`: Dynamo's class around backends; `allow_rnn`: the entry of its configuration.
    """

    def forward(wrapped: Any) -> Any:
        inner = wrapped._torchdynamo_orig_backend
        return getattr(inner, "compiler_fn", inner).backend_ctx_ctor

    override = allow_rnn.user_override
    if not hasattr(TracesRecurrentLayers, "option"):
        is_variable = isinstance(override, contextvars.ContextVar)
        TracesRecurrentLayers.option = override if is_variable else _PlainOption(allow_rnn)
    backend.backend_ctx_ctor = TracesRecurrentLayers
    wrapper.backend_ctx_ctor = property(forward)


def _rnn_layers(
    helper: Callable[..., Any],
    input: torch.Tensor,
    hidden: Sequence[Any],
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    layer_fn: Callable[..., Any],
) -> tuple[torch.Tensor, list[Any]]:
    """See Note [Recurrent layers]; `helper` is torch's own, asked for one layer at a time."""
    directions = 2 if bidirectional else 1
    steps = input.transpose(0, 1) if batch_first else input
    final: list[Any] = []
    for layer in range(num_layers):
        if layer and train and dropout:
            steps = torch.dropout(steps, dropout, True)
        own = slice(layer * directions, (layer + 1) * directions)
        steps, last = helper(steps, hidden[own], params[own], has_biases, 1, 0.0, train, bidirectional, False, layer_fn)
        final.extend(last)
    return (steps.transpose(0, 1) if batch_first else steps), final
