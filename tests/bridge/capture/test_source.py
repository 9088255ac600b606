# SPDX-License-Identifier: Apache-2.0
"""Which line a node is said to come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from relaxgrad.bridge import capture
from relaxgrad.bridge.capture import source_of
from relaxgrad.bridge.kinds import SourceLine

TORCH = str(Path(torch.__file__).parent / "nn" / "modules" / "linear.py")
NEIGHBOUR = f"{Path(torch.__file__).parent}_extra/m.py"
QUOTES = "x = 'File \"/q.py\", line 9, in z'"
BRIDGE = str(Path(capture.__file__).parent / "joint.py")


def frame(file: str, line: int, code: str = "") -> str:
    return f'  File "{file}", line {line}, in forward\n' + (f"    {code}\n" if code else "")


def node(trace: str | None) -> torch.fx.Node:
    made = torch.fx.Graph().placeholder("x")
    if trace is not None:
        made.meta["stack_trace"] = trace
    return made


@pytest.mark.parametrize(
    ("trace", "line"),
    [
        (None, None),
        ("", None),
        ("no frame in here", None),
        (frame("/m.py", 3, "y = x + 1"), SourceLine("/m.py", 3, "y = x + 1")),
        (frame("/m.py", 3), SourceLine("/m.py", 3)),
        (frame("/m.py", 3, "self.a(x)") + frame("/n.py", 5, "x.relu()"), SourceLine("/n.py", 5, "x.relu()")),
        (frame("/m.py", 3, "self.fc(x)") + frame(TORCH, 134, "F.linear"), SourceLine("/m.py", 3, "self.fc(x)")),
        (frame(BRIDGE, 60, "self.module(x)") + frame(TORCH, 134, "F.linear"), SourceLine(TORCH, 134, "F.linear")),
        (frame("/m.py", 3, "y = f(x)") + frame("<eval_with_key>.1", 4, "z"), SourceLine("/m.py", 3, "y = f(x)")),
        (frame("/m.py", 3, "f(a,\n      b)") + "    ^^^^\n", SourceLine("/m.py", 3, "f(a,")),
        (frame("/a b/m.py", 3, QUOTES), SourceLine("/a b/m.py", 3, QUOTES)),
        (frame(NEIGHBOUR, 3), SourceLine(NEIGHBOUR, 3)),
    ],
)  # fmt: skip
def test_the_line_of_a_trace(trace: str | None, line: SourceLine | None) -> None:
    assert source_of(node(trace)) == line


def test_both_graphs_of_torch_compile_say_the_users_lines() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.fc(x)
            return hidden.sigmoid()

    found: dict[str, Any] = {}
    for graph in capture.capture_pair(Model(), (torch.ones(1, 2),)):
        for n in graph.module.graph.nodes:
            if n.op == "call_function" and (line := source_of(n)):
                found[f"{graph.kind} {n.target}"] = line
    assert found["forward aten.addmm.default"].code == "hidden = self.fc(x)"
    assert found["forward aten.sigmoid.default"].code == "return hidden.sigmoid()"
    assert found["backward aten.mm.default"].code == "hidden = self.fc(x)"
    assert {line.file for line in found.values()} == {__file__}
