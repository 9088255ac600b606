# SPDX-License-Identifier: Apache-2.0
"""TVM's own PyTorch importer on the graphs of a model: which it takes, and which of those it gets right.

Each training graph that PyTorch hands to a backend is exported as it stands, translated by
`tvm.relax.frontend.torch.from_exported_program`, compiled by `tvm.compile` and run on the inputs of a training step.
Its outputs are validated as the bridge's are, by the float64 rule.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch

from relaxgrad.bridge import pytree, torch_api
from relaxgrad.bridge.forked import in_fork
from relaxgrad.bridge.schemas import CapturedGraph

from .harness import numbers
from .harness.models import describe
from .harness.problem import copy_tensors, map_tensors

if TYPE_CHECKING:
    from relaxgrad.bridge.capture import OnRun

SEED = 20
SECONDS = 120.0  # for one graph


class UpstreamOutcome(StrEnum):
    """What became of one graph."""

    RIGHT = "right"
    WRONG = "wrong"
    NOT_MAPPED = "not mapped"  # an op without a translation, or a translation that raises
    NOT_COMPILED = "not compiled"
    NOT_RUN = "not run"
    CRASH = "crash"  # the process died


@dataclass(frozen=True)
class UpstreamRecord:
    """TVM's own importer on one graph."""

    kind: str  # of the graph: forward, backward, inference
    nodes: int
    outcome: UpstreamOutcome
    detail: str = ""
    unmapped: list[str] = field(default_factory=list)  # ops without a translation, where it names them

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Runs = Sequence[tuple[CapturedGraph, list[Any]]]


def keep_run(runs: list[tuple[CapturedGraph, list[Any]]]) -> OnRun:
    """An `on_run` for a capture, which appends each graph with a copy of its inputs to `runs`."""
    return lambda graph, inputs: runs.append((graph, map_tensors(inputs, _detached)))


def _detached(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()  # TVM takes none that asks for a gradient


def try_upstream(graph: CapturedGraph, inputs: list[Any]) -> UpstreamRecord:
    """Translates, compiles, runs and validates one graph. Raises nothing for what TVM does; a crash is a crash."""

    def record(outcome: UpstreamOutcome, detail: str = "", unmapped: list[str] | None = None) -> UpstreamRecord:
        return UpstreamRecord(graph.kind.value, graph.ops().total(), outcome, detail[:300], unmapped or [])

    import tvm
    from tvm.relax.frontend.torch import from_exported_program

    try:
        with torch_api.quiet():
            program = torch.export.export(graph.module, tuple(inputs), strict=False)
            module = from_exported_program(program, run_ep_decomposition=False)
    except Exception as error:
        unmapped = re.findall(r"'([\w.]+)'", str(error)) if "Unsupported function types" in str(error) else []
        return record(UpstreamOutcome.NOT_MAPPED, describe(error), unmapped)
    try:
        executable = tvm.compile(module, target="llvm")
    except Exception as error:
        return record(UpstreamOutcome.NOT_COMPILED, describe(error))
    try:
        machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
        tensors = [t.contiguous() for t in inputs if isinstance(t, torch.Tensor)]
        returned = machine["main"](*tensors)
        results = [_as_torch(r) for r in (returned if _is_list(returned) else [returned]) if r is not None]
    except Exception as error:
        return record(UpstreamOutcome.NOT_RUN, describe(error))
    fault = first_fault(graph.module, inputs, results)
    return record(UpstreamOutcome.WRONG if fault else UpstreamOutcome.RIGHT, fault)


def _as_torch(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.from_dlpack(value)


def _is_list(value: Any) -> bool:
    return not hasattr(value, "dtype") and hasattr(value, "__len__")


def first_fault(module: torch.fx.GraphModule, inputs: list[Any], results: list[torch.Tensor]) -> str:
    """The first output that fails the float64 rule; empty where none does."""
    eager = _tensors(_run(module, inputs))
    try:
        with numbers.float64_run():
            reference = _tensors(_run(module, inputs, widen=True))
    except Exception:  # an op without float64
        reference = eager
    if len(results) != len(eager):
        return f"{len(results)} outputs where the graph has {len(eager)}"
    # The float64 kernel of an embedding bag fills in helper outputs that the float32 one leaves empty.
    wide = {n: r if (r := reference.get(n)) is not None and r.shape == t.shape else t for n, t in eager.items()}
    found = numbers.compare_all(wide, eager, dict(zip(eager, results, strict=True)))
    bad = [c for c in found if not c.right and c.verdict is not numbers.Verdict.EMPTY]
    return str(bad[0]) if bad else ""


def _run(module: torch.fx.GraphModule, inputs: list[Any], widen: bool = False) -> Any:
    torch.manual_seed(SEED)
    with torch.no_grad():
        return module(*copy_tensors(inputs, widen))


def _tensors(returned: Any) -> dict[str, torch.Tensor]:
    leaves = pytree.tree_leaves(returned)
    return {f"output {i}": t.detach() for i, t in enumerate(leaves) if isinstance(t, torch.Tensor)}


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The records of a model's graphs in figures: taken, and right."""
    return {
        "graphs": len(records),
        "mapped": sum(r["outcome"] not in (UpstreamOutcome.NOT_MAPPED, UpstreamOutcome.CRASH) for r in records),
        "right": sum(r["outcome"] == UpstreamOutcome.RIGHT for r in records),
        "outcomes": dict(Counter(r["outcome"] for r in records)),
        "unmapped": sorted({op for r in records for op in r["unmapped"]}),
    }


def run_upstream(runs: Runs, timeout: float = SECONDS) -> list[dict[str, Any]]:
    """`try_upstream` on every graph, each in a fork of this process.

    A graph whose fork dies, or hangs for `timeout` seconds, is a `crash` and costs no other.
    """
    records = []
    for graph, inputs in runs:
        record, ended = in_fork(lambda: try_upstream(graph, inputs).to_json(), timeout)  # noqa: B023 - called at once
        if record is None:
            record = UpstreamRecord(graph.kind.value, graph.ops().total(), UpstreamOutcome.CRASH, ended).to_json()
        records.append(record)
    return records
