# SPDX-License-Identifier: Apache-2.0
"""The candidates: how each compiles a training step, and what it tells of its compilation. In a worker's process."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from relaxgrad.bridge import pytree, torch_api
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.schemas import GraphKind, GraphRecord

from .names import BATCH, BUILT_IN, DYNAMIC, EAGER, INDUCTOR, OWN, RELAXGRAD


class Candidate:
    """One way to run a training step. `name`: one of OWN, or one that `parse_against` takes.

    `draw_as_eager`: where it has random numbers of its own, as TorchInductor, use eager's.
    """

    def __init__(self, name: str, draw_as_eager: bool = False):
        self.name = name
        self.draw_as_eager = draw_as_eager
        self.dynamic = True if name == DYNAMIC else None  # None: torch's own default
        self.graphs: list[GraphRecord] = []  # of relaxgrad

    @property
    def compiles(self) -> bool:
        return self.name != EAGER

    def load(self) -> None:
        """Imports all that a compilation imports, and compiles a function of one line, forward and backward.

        What a compiler does once in a process, or once on a machine (looking for vector instructions, preparing
        headers), happens here and not in the first step of a model. Raises UserError for a backend that is not there.
        """
        if not self.compiles:
            return
        if self.name == INDUCTOR:
            torch_api.load_inductor(self.draw_as_eager)
        x = torch.ones(8, 64, requires_grad=True)
        self.compile(_sum_of_products)(x).backward()
        torch.compiler.reset()
        torch_api.dynamo_clear_counters()

    def mark(self, inputs: Any) -> None:
        """Marks what is to be symbolic in the inputs (nested) of the first step."""
        if self.name == BATCH:
            for leaf in pytree.tree_leaves(inputs):
                if isinstance(leaf, torch.Tensor) and leaf.dim():
                    torch_api.mark_dynamic(leaf, 0)

    def compile(self, function: Any) -> Callable[..., Any]:
        """`function` (a module or a function) as this candidate runs it."""
        if not self.compiles:
            return function
        if self.name in OWN:
            from relaxgrad.bridge import backend

            compiled: Callable[..., Any] = backend.compile(function, dynamic=self.dynamic)
            return compiled
        module, colon, attribute = self.name.partition(":")
        if colon:
            return torch.compile(function, backend=getattr(importlib.import_module(module), attribute))
        if self.name not in torch.compiler.list_backends(exclude_tags=()):
            known = ", ".join(sorted({*BUILT_IN, *torch.compiler.list_backends()} - {RELAXGRAD}))
            raise UserError(f"--against {self.name}: torch.compile has no such backend; known: {known}")
        return torch.compile(function, backend=self.name)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """While open, `graphs` gets what relaxgrad compiles."""
        if self.name not in OWN:
            yield
            return
        from relaxgrad.bridge import backend

        with backend.record_graphs() as graphs:
            self.graphs = graphs
            yield

    def did_nothing(self) -> str:
        """Why a step that ran is none of relaxgrad's: its forward or its backward had no graph on TVM. Else empty."""
        if self.name not in OWN:
            return ""
        ran = {g.kind for g in self.graphs if g.runs and (g.calls.get(Kind.NATIVE) or g.calls.get(Kind.LIBRARY))}
        if ran >= {GraphKind.FORWARD, GraphKind.BACKWARD}:
            return ""
        reasons = [str(reason) for graph in self.graphs for reason in graph.reasons]
        reasons += [f"graph break: {reason.splitlines()[0]}" for reason in _breaks()]
        return "no graph was compiled and run by relaxgrad" + (f": {reasons[0]}" if reasons else "")

    def backend_seconds(self) -> float | None:
        """For how long compilations of the backend's own kept this process waiting so far; None where nothing tells."""
        if self.name in OWN:
            return sum(graph.waited for graph in self.graphs)
        if self.name == INDUCTOR:
            return torch_api.compile_seconds().get("compile_fx_inner", 0.0)
        return None


def _breaks() -> dict[str, int]:
    return torch_api.dynamo_counters().get("graph_break", {})


def _sum_of_products(x: torch.Tensor) -> torch.Tensor:
    return (x @ x.t() @ x).sum()
