# SPDX-License-Identifier: Apache-2.0
"""Writes a captured graph as a sample."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.fx

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.capture.show import render
from relaxgrad.bridge.capture.source import source_of
from relaxgrad.bridge.device import host
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.files import write_whole
from relaxgrad.bridge.schemas import CapturedGraph, OutputRole

from . import schema
from .load import run, seeded

#: A floating-point input of more bytes is drawn from a seed when the sample is loaded.
STORED = 1 << 22
SEED = 7


def save(captured: CapturedGraph, inputs: Sequence[Any], folder: Path, part: str = "") -> schema.Sample:
    """Writes the sample of a graph and the inputs of one run of it; the graph is run once more to know its outputs.

    Each file is whole or not there. Raises UserError for what a sample cannot hold (symbolic sizes, calls that are no
    ops of ATen, tensors that are not strided ones on the CPU).
    """
    tensors = _Tensors()
    graph = captured.module.graph
    if any(torch_api.has_symbols(node.meta.get("val")) for node in graph.nodes):
        raise UserError("a sample holds values, and so no symbolic sizes: capture without --dynamic")
    kept = []
    for meaning, value in zip(captured.inputs, inputs, strict=True):
        tensor = tensors.add(value, may_draw=True) if isinstance(value, torch.Tensor) else None
        if tensor is None and not (value is None or isinstance(value, bool | int | float)):
            raise UserError(f"a sample cannot hold the input {meaning.name}, a value of type {type(value).__name__}")
        number = None if tensor is not None else value
        kept.append(
            schema.Input(
                name=meaning.name, role=meaning.role, target=schema.plain(meaning.target), tensor=tensor, number=number
            )
        )
    constants: dict[str, schema.Tensor] = {}
    found = (_node(captured.module, node, constants, tensors) for node in graph.nodes)
    nodes = [node for node in found if node is not None]
    (output,) = (n for n in graph.nodes if n.op == "output")
    sample = schema.Sample(
        kind=captured.kind,
        decompose=captured.decompose,
        part=part,
        torch=str(torch.__version__),
        seed=SEED,
        inputs=kept,
        constants=constants,
        nodes=nodes,
        returned=[schema.written(v) for v in output.args[0]],
        outputs=[],
        tensor_bytes=len(tensors.bytes),
    )
    given = tensors.as_read(kept)
    returned, written = run(captured.module, given, SEED)
    sample.outputs = [_output(o.role, o.target, v) for o, v in zip(captured.outputs, returned, strict=True)]
    sample.written = {name: _output(OutputRole.MUTATION, name, value) for name, value in written.items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / schema.TENSOR_FILE, bytes(tensors.bytes))
    write_whole(folder / schema.TEXT_FILE, render(captured).encode())
    write_whole(folder / schema.JSON_FILE, sample.text(bytes(tensors.bytes)).encode())
    return sample


class _Tensors:
    """The bytes of tensors.bin as they grow, and the tensors as a reader will have them."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.made: list[torch.Tensor] = []

    def add(self, value: torch.Tensor, may_draw: bool) -> schema.Tensor:
        if value.layout is not torch.strided or value.device.type != host().name or type(value) not in _PLAIN:
            raise UserError(
                f"a sample cannot hold a value of type {type(value).__name__}, layout {value.layout}, on {value.device}"
            )
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in schema.DTYPES:
            raise UserError(f"a sample cannot hold a tensor of {dtype}")
        value = value.detach()
        size, stride = list(value.shape), list(value.stride())
        spec = schema.Tensor(dtype=dtype, size=size, stride=stride)
        if may_draw and value.is_floating_point() and value.numel() * value.element_size() > STORED:
            spec.seed = len(self.made)
            self.made.append(seeded(spec))
            return spec
        spec.start = len(self.bytes)
        memory = value.as_strided((schema.span(size, stride),), (1,))
        self.bytes += schema.raw_bytes(memory.clone())
        self.made.append(memory.clone().as_strided(size, stride))
        return spec

    def as_read(self, inputs: Sequence[schema.Input]) -> list[Any]:
        """The values that a reader will have for the inputs, which were added first."""
        made = iter(self.made)
        return [given.number if given.tensor is None else next(made) for given in inputs]


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _node(
    module: torch.fx.GraphModule, node: torch.fx.Node, constants: dict[str, schema.Tensor], tensors: _Tensors
) -> schema.Node | None:
    if node.op in ("placeholder", "output"):
        return None
    if node.op == "get_attr":
        value: Any = module
        for step in str(node.target).split("."):
            value = getattr(value, step)
        if not isinstance(value, torch.Tensor):
            raise UserError(f"a sample cannot hold {node.target}, a value of type {type(value).__name__} of the graph")
        constants[node.name] = tensors.add(value, may_draw=False)
        return schema.Node(name=node.name, op="constant", target=node.name)
    args, kwargs = [schema.written(a) for a in node.args], {k: schema.written(v) for k, v in node.kwargs.items()}
    source = source_of(node)
    where = "" if source is None else schema.plain(str(source))
    if node.target is operator.getitem:
        return schema.Node(name=node.name, op="item", target="getitem", args=args, source=where)
    if not isinstance(node.target, torch_api.OpOverload):
        raise UserError(f"a sample cannot hold {node.target} (node {node.name}), which is no op of ATen")
    return schema.Node(name=node.name, op="call", target=str(node.target), args=args, kwargs=kwargs, source=where)


def _output(role: OutputRole, target: str, value: Any) -> schema.Output:
    target = schema.plain(target)
    if not isinstance(value, torch.Tensor):
        return schema.Output(role=role, target=target, sha256=schema.digest(value))
    return schema.Output(
        role=role,
        target=target,
        dtype=str(value.dtype).removeprefix("torch."),
        size=list(value.shape),
        stride=list(value.stride()),
        sha256=schema.digest(value),
    )
