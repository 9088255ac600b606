# SPDX-License-Identifier: Apache-2.0
"""Live module -> CapturedGraph: a training graph, and what each of its inputs and outputs means."""

from .coalesce import coalesce_saved
from .decompose import TABLES, decompositions, is_core, non_core_ops
from .joint import capture_joint
from .pair import OnRun, capture_pair
from .show import describe_node, render, save
from .signature import describe
from .source import source_of

__all__ = [
    "TABLES",
    "OnRun",
    "capture_joint",
    "capture_pair",
    "coalesce_saved",
    "decompositions",
    "describe",
    "describe_node",
    "is_core",
    "non_core_ops",
    "render",
    "save",
    "source_of",
]
