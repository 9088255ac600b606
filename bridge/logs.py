# SPDX-License-Identifier: Apache-2.0
"""RELAXGRAD_LOGS: what becomes of each graph while a user trains, printed to stderr through the logger
`relaxgrad.stages`.

What is printed is made anew from the graph, after it was compiled or found in the cache: the switch changes nothing of
what runs. Off, it costs one look at the environment a graph.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator

from .errors import UserError
from .kinds import ReasonKind
from .schemas import CapturedGraph, GraphRecord

VARIABLE = "RELAXGRAD_LOGS"
#: What can be printed, by the names that `relaxgrad explain --stage` has for it.
STAGES = {
    "partition": "the graph as torch.compile hands it to the backend, with the source line of each call",
    "relax": "the Relax function as it was translated, and after each pass that changed it",
    "fusion": "the nodes of the graph that become one kernel",
    "kernels": "each kernel as it was scheduled (TIR), and its generated code (LLVM IR)",
}
ALL = "all"

_log = logging.getLogger("relaxgrad.stages")


def wanted() -> frozenset[str]:
    """The stages that RELAXGRAD_LOGS names; none where it is not set. Raises UserError for a name that is none."""
    text = os.environ.get(VARIABLE, "")
    names = {name.strip() for name in text.split(",")} - {""}
    if unknown := sorted(names - STAGES.keys() - {ALL}):
        raise UserError(
            f"{VARIABLE}={text!r}: no stage is called {unknown[0]!r}; stages: {', '.join(STAGES)}, {ALL}. What is "
            "before them is torch's to print: TORCH_LOGS=graph_code,aot_joint_graph"
        )
    return frozenset(STAGES if ALL in names else names)


def show(captured: CapturedGraph, record: GraphRecord, target: str) -> None:
    """Prints the wanted stages of one graph, of which `record` tells how it was compiled.

    A listing that cannot be made is said to be missing, with the cause. Raises UserError as `wanted`.
    """
    names = wanted()
    if not names:
        return
    _open()
    title = f"graph {record.index}, {record.kind}"
    _log.info("%s: %s", title, _summary(record))
    for reason in record.reasons:
        _log.info("%s, in ATen: %s", title, reason)
    try:
        for what, text in _listings(captured, record, target, names):
            _log.info("%s, %s:\n%s", title, what, text.rstrip())
    except Exception as error:  # the graph is compiled; only listings are lost
        _log.info("%s: no more listings: %s: %s", title, type(error).__name__, error)


def _listings(
    captured: CapturedGraph, record: GraphRecord, target: str, names: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """(title, text) of each wanted listing, in the order in which a graph goes through the stages."""
    if "partition" in names:
        from .capture import render

        yield "partition", render(captured)
    if not record.seconds or names == {"partition"}:  # nothing of it is TVM's, or nothing is asked
        return
    from .compile.inspect.trace import traced
    from .importer.state import Options

    failed = {r.node: r.detail for r in record.reasons if r.kind is ReasonKind.COMPILE}
    found = traced(captured, target, Options(not_native=failed), code="kernels" in names, longest=sys.maxsize)
    if "relax" in names:
        for name, text in found.mains:
            yield f"relax, {name}", text
    if "fusion" in names and found.groups:
        yield "fusion", "\n".join(f"  {kernel}: {', '.join(nodes)}" for kernel, nodes in found.groups.items())
    for kernel in found.kernels:
        yield f"kernels, {kernel.name} ({kernel.kind}), TIR", kernel.tir
        if kernel.code:
            yield f"kernels, {kernel.name}, {captured.device.listing_name}", kernel.code


def _summary(record: GraphRecord) -> str:
    """In one line: how its nodes run, and where its code is from."""
    calls = ", ".join(f"{count} {kind}" for kind, count in record.calls.items())
    if not record.seconds:
        return f"{calls}; runs in ATen as a whole"
    if "cache" in record.seconds:
        how = f"from the cache of compiled graphs in {record.seconds['cache']:.2f} s"
    else:
        how = f"translated in {record.seconds['translate']:.2f} s, compiled in {record.seconds['compile']:.2f} s"
    return f"{calls or 'no calls'}; {record.kernels} kernel{'s' if record.kernels != 1 else ''}; {how}"


class _Stderr(logging.Handler):
    """Writes to what is stderr at the time, as a notebook or a test may have put another in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(f"[relaxgrad] {self.format(record)}", file=sys.stderr)
        except Exception:  # a closed pipe ends no training
            self.handleError(record)


def _open() -> None:
    """Makes the logger print, once; records go no further, where the user's own handlers would print them again."""
    if not _log.handlers:
        _log.addHandler(_Stderr())
        _log.setLevel(logging.INFO)
        _log.propagate = False
