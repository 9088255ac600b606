# SPDX-License-Identifier: Apache-2.0
"""The attributes that a graph reads: tensors that are inputs of the compiled graph, and rarely something else."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx


def attribute(module: torch.fx.GraphModule, node: torch.fx.Node) -> Any:
    """What a `get_attr` node stands for; a tensor without its gradient."""
    value: Any = module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value.detach() if isinstance(value, torch.Tensor) else value


def constants(module: torch.fx.GraphModule) -> list[torch.Tensor]:
    """The tensors among them, one for each node, in the order in which they follow the graph's inputs."""
    found = (attribute(module, node) for node in module.graph.nodes if node.op == "get_attr")
    return [value for value in found if isinstance(value, torch.Tensor)]
