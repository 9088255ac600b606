# SPDX-License-Identifier: Apache-2.0
"""A graph compiled for a device that need not be there: its code as text, and how each call would run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tvm.target import Target

from ..device import Device
from ..importer.state import Options
from ..importer.translate import translate
from ..kinds import Kind, Reason
from ..schemas import CapturedGraph
from .pipeline import compile_module, listing


@dataclass(frozen=True)
class CrossCompiled:
    """What became of a graph."""

    source: str  # of the device's kernels, as `Device.listing` says; empty where the graph has none
    calls: Counter[Kind]  # of the graph's nodes
    reasons: tuple[Reason, ...]  # of those that fall back


def cross_compile(captured: CapturedGraph, device: Device, target: Target) -> CrossCompiled:
    """Compiles a graph captured on the host for `target`, one of `device`. Raises what translation and TVM raise."""
    device = device.of_host_graphs()
    captured.device = device
    translation = translate(captured, Options(tuned=device.tuned(captured.module)))
    code = compile_module(translation.module, device, target)
    return CrossCompiled(
        listing(code.executable.mod, device), Counter(node.kind for node in translation.nodes), translation.reasons
    )
