# SPDX-License-Identifier: Apache-2.0
"""Small modules for the tests of capture, and what runs a captured graph by PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from relaxgrad.bridge import pytree
from relaxgrad.bridge.schemas import CapturedGraph, InputRole, OutputRole


class Net(nn.Module):
    """A parameter that is tied, a buffer that is updated, dropout, a keyword input, nested outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, Any]:
        hidden = self.norm(self.first(x))
        hidden = self.drop(hidden) * scale
        return {"hidden": [hidden], "out": self.second(hidden.relu())}


def net_inputs() -> tuple[tuple[torch.Tensor], dict[str, torch.Tensor]]:
    return (torch.randn(5, 4, requires_grad=True),), {"scale": torch.randn(4)}


def run_by_pytorch(
    graph: CapturedGraph, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[tuple[OutputRole, str], Any]:
    """The outputs of a joint graph by role and target, its inputs bound by role and target, every tangent ones."""
    members = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    given = {"args" + path: leaf for path, leaf in pytree.tree_paths(args)}
    given |= {"kwargs" + path: leaf for path, leaf in pytree.tree_paths(dict(kwargs))}
    outputs = {o.target: o for o in graph.outputs if o.role is OutputRole.OUTPUT}
    sizes = {
        name: size
        for i in graph.inputs
        if i.role is InputRole.INPUT and i.shape is not None
        for name, size in zip(i.shape, given[i.target].shape, strict=True)
    }

    def value(role: InputRole, target: str) -> Any:
        if role is InputRole.TANGENT:
            like = outputs[target]
            assert like.shape is not None
            return torch.ones(
                [sizes[n] if n in sizes else int(n) for n in like.shape], dtype=getattr(torch, like.dtype)
            )
        found = given[target] if role in (InputRole.INPUT, InputRole.SIZE) else members[target].detach().clone()
        return found.detach() if isinstance(found, torch.Tensor) else found

    results = graph.module(*(value(i.role, i.target) for i in graph.inputs))
    return {(o.role, o.target): r for o, r in zip(graph.outputs, results, strict=True) if o.role is not OutputRole.NONE}
