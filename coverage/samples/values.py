# SPDX-License-Identifier: Apache-2.0
"""Inputs for a joint graph, by what each of them means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.schemas import CapturedGraph, GraphInput, InputRole

from .load import seeded
from .schema import Tensor


def joint_inputs(
    graph: CapturedGraph, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Any]:
    """Values for the inputs of `capture_joint(module, args, kwargs)`: the module's own, the arguments, drawn tangents.

    Raises UserError for an input of another kind.
    """
    members = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    return [
        _value(given, number, members, {"args": args, "kwargs": kwargs}) for number, given in enumerate(graph.inputs)
    ]


def _value(given: GraphInput, number: int, members: Mapping[str, Any], arguments: dict[str, Any]) -> Any:
    if given.role in (InputRole.PARAMETER, InputRole.BUFFER) and given.target in members:
        return members[given.target].detach()
    if given.role is InputRole.INPUT:
        return at_path(arguments, given.target)
    if given.role is InputRole.TANGENT and given.shape is not None:
        size, stride = [int(n) for n in given.shape], [int(n) for n in given.stride or ()]
        return seeded(Tensor(dtype=given.dtype.removeprefix("torch."), size=size, stride=stride, seed=number))
    raise UserError(f"a sample of the joint graph has no value for its input {given.name}, {given.role} {given.target}")


def at_path(arguments: Mapping[str, Any], path: str) -> Any:
    """What `args[0]['x'].y` names."""
    name, rest = re.fullmatch(r"(\w+)(.*)", path, re.DOTALL).groups()  # type: ignore[union-attr]  # a path starts so
    value: Any = arguments[name]
    for key, index, attribute in re.findall(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)", rest):
        value = getattr(value, attribute) if attribute else value[int(index)] if index else value[key]
    return value.detach() if isinstance(value, torch.Tensor) else value
