# SPDX-License-Identifier: Apache-2.0
"""Compilers for tests of the training comparison: PyTorch's own AOTAutograd, with eager kernels and planted faults."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.schemas import GraphKind, GraphRecord

Fault = Callable[[list[Any]], list[Any]]  # outputs of a graph -> the outputs that the graph returns


@dataclass
class StandIn:
    """`forward_fault` and `backward_fault` change what the graphs return; `skip` leaves the module in eager;
    `in_aten` says of the graphs that no op of them runs on the backend."""

    forward_fault: Fault | None = None
    backward_fault: Fault | None = None
    skip: bool = False
    in_aten: bool = False
    name: str = "stand-in"
    graphs: list[GraphRecord] = field(default_factory=list)

    def compile(self, module: nn.Module) -> Callable[..., Any]:
        if self.skip:
            return module
        backend = torch_api.aot_backend(
            self._compiler(GraphKind.FORWARD, self.forward_fault),
            self._compiler(GraphKind.BACKWARD, self.backward_fault),
            self._compiler(GraphKind.INFERENCE, None),
            {},
        )
        return torch.compile(module, backend=backend)

    def _compiler(self, kind: GraphKind, fault: Fault | None) -> Any:
        def compiler(gm: torch.fx.GraphModule, inputs: Any) -> Any:
            record = GraphRecord(
                kind,
                len(self.graphs),
                {Kind.FALLBACK: 1} if self.in_aten else {Kind.NATIVE: 1},
                {},
                (),
                False,
                0,
                {"compile": 0.0},
            )
            self.graphs.append(record)

            def run(*args: Any) -> Any:
                record.runs += 1
                outputs = list(gm(*args))
                return outputs if fault is None else fault(outputs)

            return torch_api.make_boxed_func(run)

        return compiler

    @contextlib.contextmanager
    def record(self) -> Iterator[list[GraphRecord]]:
        self.graphs = []
        yield self.graphs
