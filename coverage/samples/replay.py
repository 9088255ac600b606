# SPDX-License-Identifier: Apache-2.0
"""Runs a sample on a backend and compares what comes out with what the sample says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.schemas import GraphKind

from . import schema
from .load import Loaded, run

BACKENDS = ("eager", "relaxgrad", "inductor")


@dataclass(frozen=True)
class Result:
    """One output of the replay."""

    role: str
    target: str
    expected: schema.Output
    value: Any
    equal: bool  # bit by bit, with dtype and size
    layout: bool  # with the same strides


def replay(loaded: Loaded, backend: str = "eager") -> list[Result]:
    """Every output, and every input that is written to, as `backend` computes it. Raises what the backend raises."""
    module = loaded.module
    if backend == "eager":
        returned, written = run(module, loaded.inputs, loaded.sample.seed)
    else:
        returned, written = run(_Compiled(loaded, backend), loaded.inputs, loaded.sample.seed)  # type: ignore[arg-type]  # runs as one
    sample = loaded.sample
    pairs = [*zip(sample.outputs, returned, strict=True), *((o, written[name]) for name, o in sample.written.items())]
    return [_result(expected, value) for expected, value in pairs]


def _result(expected: schema.Output, value: Any) -> Result:
    equal = schema.digest(value) == expected.sha256
    layout = not isinstance(value, torch.Tensor) or list(value.stride()) == expected.stride
    return Result(expected.role, expected.target, expected, value, equal, layout)


class _Compiled:
    """A sample's graph on a backend, which `run` takes for the graph itself."""

    def __init__(self, loaded: Loaded, backend: str):
        self.graph = loaded.module.graph
        self._boxed: Callable[..., Any] | None = None
        if backend == "relaxgrad":
            from relaxgrad.bridge.backend import BackendOptions, compile_graph

            self._boxed = compile_graph(loaded.module, GraphKind.INFERENCE, BackendOptions(on_compile_error="raise"))
        else:
            torch.compiler.reset()
            if backend == "inductor":
                torch_api.load_inductor(draws_as_eager=True)  # the sample's outputs have eager's random numbers
            self._function = torch.compile(loaded.module, backend=backend)

    def __call__(self, *inputs: Any) -> Any:
        return self._function(*inputs) if self._boxed is None else self._boxed(list(inputs))
