"""Live module -> CapturedGraph: a training graph, and what each of its inputs and outputs means."""

from .decompose import TABLES, decompositions, is_core, residue
from .joint import capture_joint
from .packs import pack_saved
from .pair import OnRun, capture_pair
from .show import describe_node, render, save
from .signature import describe
from .source import source_of

__all__ = [
    "TABLES",
    "OnRun",
    "capture_joint",
    "capture_pair",
    "decompositions",
    "describe",
    "describe_node",
    "is_core",
    "pack_saved",
    "render",
    "residue",
    "save",
    "source_of",
]
