# SPDX-License-Identifier: Apache-2.0
"""What each input and output of a training graph means, read off AOTAutograd's descriptors.

AOTAutograd writes a typed descriptor on every placeholder (`meta["desc"]`) and the list of them on the output node. A
role comes from the descriptor's *type*; a placeholder or output whose descriptor we do not know gets the role UNKNOWN.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from .. import torch_api
from ..schemas import CapturedGraph, GraphInput, GraphKind, GraphOutput, InputRole, OutputRole
from .decompose import non_core_ops

Meaning = tuple[InputRole, str]


@dataclass(frozen=True)
class Names:
    """The user's names for flat positions, where the capture knows them."""

    inputs: Mapping[int, Meaning] = field(default_factory=dict)  # PlainAOTInput.idx -> role and path
    outputs: Mapping[int, str] = field(default_factory=dict)  # PlainAOTOutput.idx -> path
    prefix: str = ""  # taken off parameter and buffer names: what capture itself wrapped around the module


def describe(
    gm: torch.fx.GraphModule,
    kind: GraphKind,
    *,
    sources: Sequence[str | None] | None = None,
    decompose: str = "core_aten",
    names: Names | None = None,
) -> CapturedGraph:
    """The graph with the meaning of its inputs and outputs.

    `sources` are the access paths of the Dynamo graph's inputs (`torch_api.input_sources`, taken before AOTAutograd):
    with them, the inputs of a torch.compile graph are told apart as parameters, buffers and inputs.
    """
    if names is None:
        names = Names({i: source_meaning(source) for i, source in enumerate(sources or ()) if source is not None})
    node = next(iter(gm.graph.find_nodes(op="output")))
    returned, descs = _outputs(node)
    needs_grad = {d.grad_of for d in descs if hasattr(d, "grad_of")}
    metadata = torch_api.input_requires_grad()

    def requires_grad(desc: Any) -> bool:
        if desc in needs_grad:
            return True
        if metadata is None or kind is GraphKind.JOINT or not isinstance(desc, torch_api.descriptors().PlainAOTInput):
            return False
        return desc.idx < len(metadata) and metadata[desc.idx]

    inputs = tuple(
        _input(placeholder, kind, names, requires_grad) for placeholder in gm.graph.find_nodes(op="placeholder")
    )
    outputs = tuple(_output(value, desc, names) for value, desc in zip(returned, descs, strict=True))
    return CapturedGraph(gm, kind, inputs, outputs, decompose, non_core_ops(gm))


def _outputs(node: torch.fx.Node) -> tuple[list[Any], list[Any]]:
    """The flat values that a graph returns and a descriptor (or None) for each.

    Where activation checkpointing adds the random states that it saves to the outputs, torch drops all descriptors.
    """
    value = node.args[0]
    returned = list(value) if isinstance(value, list | tuple) else [value]
    descs = list(node.meta.get("desc") or ())
    return returned, descs if len(descs) == len(returned) else [None] * len(returned)


def _input(node: torch.fx.Node, kind: GraphKind, names: Names, requires_grad: Callable[[Any], bool]) -> GraphInput:
    desc = node.meta.get("desc")
    value = node.meta.get("val")
    role, target = (InputRole.UNKNOWN, "") if desc is None else input_meaning(desc, names)
    if torch_api.is_symint(value) or (desc is not None and role is InputRole.INPUT and isinstance(value, int)):
        role = InputRole.SIZE
    elif desc is None and _feeds_random_state(node):
        role = InputRole.RNG
    elif desc is None and kind is GraphKind.BACKWARD:
        # The partitioner gives a backward graph its tangents, which carry a descriptor, and what the forward saved.
        role = InputRole.SAVED
    return GraphInput(node.name, role, target, *_layout(value), requires_grad=requires_grad(desc))


def _output(value: Any, desc: Any, names: Names) -> GraphOutput:
    if value is None:
        return GraphOutput(None, OutputRole.NONE, "" if desc is None else output_meaning(desc, names)[1])
    held = value.meta.get("val") if isinstance(value, torch.fx.Node) else value
    role, target = (OutputRole.UNKNOWN, "") if desc is None else output_meaning(desc, names)
    if desc is None and _is_random_state(value):
        role = OutputRole.RNG
    if torch_api.is_symint(held) and role is not OutputRole.SAVED:
        role = OutputRole.SIZE
    return GraphOutput(value.name if isinstance(value, torch.fx.Node) else None, role, target, *_layout(held))


def input_meaning(desc: Any, names: Names) -> Meaning:
    """Role and target of an AOTInput descriptor."""
    d = torch_api.descriptors()
    if isinstance(desc, d.ParamAOTInput):
        return InputRole.PARAMETER, desc.target.removeprefix(names.prefix)
    if isinstance(desc, d.BufferAOTInput):
        return InputRole.BUFFER, desc.target.removeprefix(names.prefix)
    if isinstance(desc, d.PlainAOTInput):
        return names.inputs.get(desc.idx, (InputRole.INPUT if names.prefix else InputRole.UNKNOWN, desc.expr()))
    if isinstance(desc, d.TangentAOTInput):
        return InputRole.TANGENT, output_meaning(desc.output, names)[1]
    if isinstance(desc, d.ViewBaseAOTInput | d.SyntheticBaseAOTInput):
        role, target = input_meaning(desc.base_of, names)
        return role, f"base of {target}"
    if isinstance(desc, d.SubclassGetAttrAOTInput):
        role, target = input_meaning(desc.base, names)
        return role, f"{target}.{desc.attr}"
    if isinstance(desc, d.SubclassSizeAOTInput | d.SubclassStrideAOTInput):
        return InputRole.SIZE, desc.expr()
    if type(desc).__name__.startswith("Philox"):
        return InputRole.RNG, desc.expr()
    return InputRole.UNKNOWN, desc.expr()


def output_meaning(desc: Any, names: Names) -> tuple[OutputRole, str]:
    """Role and target of an AOTOutput descriptor."""
    d = torch_api.descriptors()
    if isinstance(desc, d.PlainAOTOutput):
        return OutputRole.OUTPUT, names.outputs.get(desc.idx, desc.expr())
    if isinstance(desc, d.GradAOTOutput):
        return OutputRole.GRADIENT, input_meaning(desc.grad_of, names)[1]
    if isinstance(desc, d.InputMutationAOTOutput):
        return OutputRole.MUTATION, input_meaning(desc.mutated_input, names)[1]
    if isinstance(desc, d.IntermediateBaseAOTOutput):
        return OutputRole.OUTPUT, f"base of {output_meaning(desc.base_of, names)[1]}"
    if isinstance(desc, d.SubclassGetAttrAOTOutput):
        role, target = output_meaning(desc.base, names)
        return role, f"{target}.{desc.attr}"
    if isinstance(desc, d.SubclassSizeAOTOutput | d.SubclassStrideAOTOutput):
        return OutputRole.SIZE, desc.expr()
    if type(desc).__name__.startswith("SavedForBackwards"):
        return OutputRole.SAVED, desc.expr()
    if type(desc).__name__.startswith("Philox"):
        return OutputRole.RNG, desc.expr()
    return OutputRole.UNKNOWN, desc.expr()


def _is_random_state(value: Any) -> bool:
    """Whether an output is a generator state: the first result of `run_and_save_rng_state`."""
    if not isinstance(value, torch.fx.Node) or value.target is not operator.getitem:
        return False
    source, index = value.args
    return isinstance(source, torch.fx.Node) and str(source.target) == "run_and_save_rng_state" and bool(index == 0)


def _feeds_random_state(node: torch.fx.Node) -> bool:
    """Whether a placeholder is a generator state: it is the first argument of `run_with_rng_state`."""
    return bool(node.users) and all(
        str(user.target) == "run_with_rng_state" and user.args and user.args[0] is node for user in node.users
    )


def _layout(value: Any) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None, str]:
    """Shape, stride and dtype as text; (None, None, type) for what is not a strided tensor."""
    if isinstance(value, torch.Tensor):
        shape = tuple(map(str, value.shape))
        stride = tuple(map(str, value.stride())) if value.layout is torch.strided else None
        return shape, stride, str(value.dtype).removeprefix("torch.")
    return None, None, "" if value is None else type(value).__name__


# In Dynamo's access paths a module's members are reached through its three dictionaries.
_STEP = re.compile(r"\._(?P<kind>modules|parameters|buffers)\[(?P<quote>['\"])(?P<name>.*?)(?P=quote)\]")


def source_meaning(source: str) -> Meaning:
    """Role and name of the access path by which Dynamo reached an input.

    `L['self']._modules['fc']._parameters['weight']` is the parameter `fc.weight`; a path that ends outside a module's
    own dictionaries is an input, named by the path.
    """
    steps = list(_STEP.finditer(source))
    if steps and steps[-1].end() == len(source) and steps[-1]["kind"] != "modules":
        role = InputRole.PARAMETER if steps[-1]["kind"] == "parameters" else InputRole.BUFFER
        return role, ".".join(step["name"] for step in steps)
    return InputRole.INPUT, source
