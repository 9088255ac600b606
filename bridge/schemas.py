# SPDX-License-Identifier: Apache-2.0
"""The dataclasses that cross a border between folders of the bridge; each field says who fills it.

CapturedGraph -> Translation -> Executable. CapturedGraph and GraphRecord live here; Translation is in plan.py, and
Executable in runtime/executable.py.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from .device import Device, device_of
from .kinds import Kind, Reason, SourceLine

if TYPE_CHECKING:
    import torch.fx


class GraphKind(StrEnum):
    """Which part of a training step a graph is."""

    JOINT = "joint"
    FORWARD = "forward"
    BACKWARD = "backward"
    INFERENCE = "inference"


class InputRole(StrEnum):
    PARAMETER = "parameter"
    BUFFER = "buffer"
    INPUT = "input"
    TANGENT = "tangent"
    SAVED = "saved"  # an activation that the forward graph saved for this backward graph
    RNG = "rng"
    SIZE = "size"  # a SymInt
    UNKNOWN = "unknown"


class OutputRole(StrEnum):
    OUTPUT = "output"
    GRADIENT = "gradient"
    MUTATION = "mutation"  # the new value of a mutated input
    SAVED = "saved"
    SIZE = "size"
    RNG = "rng"
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class GraphInput:
    """What one placeholder means. Filled by capture, from AOTAutograd's descriptors, never by position."""

    name: str  # of the placeholder
    role: InputRole
    target: str = ""  # parameter or buffer name, path of the user input, output that a tangent belongs to
    shape: tuple[str, ...] | None = None  # None for what is not a tensor; symbolic sizes as text
    stride: tuple[str, ...] | None = None
    dtype: str = ""
    requires_grad: bool = False


@dataclass(frozen=True)
class GraphOutput:
    """What one output means. Filled by capture."""

    name: str | None  # of the node that is returned; None for a `None` output
    role: OutputRole
    target: str = ""  # gradient of what, mutation of what, path of the user output
    shape: tuple[str, ...] | None = None
    stride: tuple[str, ...] | None = None
    dtype: str = ""


@dataclass
class CapturedGraph:
    """A training graph with the meaning of its inputs and outputs. Filled by capture."""

    module: torch.fx.GraphModule  # every node carries meta["val"] (FakeTensor, SymInt, ...)
    kind: GraphKind
    inputs: tuple[GraphInput, ...]
    outputs: tuple[GraphOutput, ...]
    decompose: str = "core_aten"  # name of the decomposition table
    non_core_ops: Counter[str] = field(default_factory=Counter)  # calls of ops outside core ATen, by overload name

    @functools.cached_property
    def device(self) -> Device:
        """The device that the graph is compiled for: that of its tensors."""
        return device_of(self.module)

    def ops(self) -> Counter[str]:
        """Calls by overload name (as `aten.mm.default`)."""
        return Counter(str(n.target) for n in self.module.graph.nodes if n.op == "call_function")


@dataclass(frozen=True)
class NodeRecord:
    """How one node of a graph runs. Filled by backend.py."""

    node: str  # name of the FX node
    op: str  # overload name, as `aten.mm.default`
    kind: Kind
    source: SourceLine | None  # in the user's model
    reason: Reason | None = None  # where it fell back


@dataclass
class GraphRecord:
    """What became of one graph that torch.compile handed to the backend. Filled by backend.py."""

    kind: GraphKind
    index: int  # running number in this process; the forward and the backward of a pair have their own
    calls: dict[Kind, int]  # nodes of the graph by kind
    ops: dict[str, dict[Kind, int]]  # overload name -> calls by kind
    reasons: tuple[Reason, ...]  # one for each fallback node
    symbolic: bool  # whether the graph has symbolic sizes
    kernels: int  # kernels that TVM generated, after fusion
    seconds: dict[str, float]  # stage -> wall time in seconds: translate, compile; cache, of a graph that was kept
    nodes: tuple[NodeRecord, ...] = ()  # in the order in which they run
    waited: float = 0.0  # seconds for which the process that trains was kept waiting; a child may have compiled
    runs: int = 0  # calls so far. Filled by the runtime
    copies: int = 0  # input copies made because of layout so far. Filled by the runtime
