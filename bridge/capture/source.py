# SPDX-License-Identifier: Apache-2.0
"""Which line of the user's model a graph node came from."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ..kinds import SourceLine

if TYPE_CHECKING:
    import torch.fx

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in .*$')
_TORCH = str(Path(torch.__file__).parent)
_BRIDGE = str(Path(__file__).parent.parent)


def source_of(node: torch.fx.Node | None) -> SourceLine | None:
    """The user's line for a node, from `node.meta["stack_trace"]`; None when no trace was recorded, or for no node.

    It is the innermost frame outside torch (and outside the bridge): for `nn.Linear` inside a model, the line of the
    model that calls it. When every frame is torch's own (an `nn.Transformer` is the whole model) the innermost stands.
    AOTAutograd gives a backward node the stack of the forward node whose gradient it computes.
    """
    trace = node.meta.get("stack_trace") if node is not None else None
    return _parse(trace) if trace else None


@functools.lru_cache(maxsize=4096)
def _parse(trace: str) -> SourceLine | None:
    frames: list[SourceLine] = []
    for line in trace.splitlines():
        match = _FRAME.match(line)
        if match:
            frames.append(SourceLine(match["file"], int(match["line"])))
        elif frames and not frames[-1].code and line.strip() and not set(line.strip()) <= set("^~ "):
            frames[-1] = SourceLine(frames[-1].file, frames[-1].line, line.strip())
    named = [f for f in frames if not f.file.startswith("<")]  # `<eval_with_key>` is generated code
    users = [f for f in named if not is_internal(f.file)]
    found = users or named
    return found[-1] if found else None


def is_internal(file: str) -> bool:
    """Whether a source file belongs to torch or to the bridge itself."""
    return file.startswith((_TORCH + os.sep, _BRIDGE + os.sep))
