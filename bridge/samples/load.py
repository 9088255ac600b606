"""Reads a sample: what is refused, and the graph and inputs that it holds."""

from __future__ import annotations

import json
import operator
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.fx
from pydantic import ValidationError

from .. import torch_api
from ..errors import UserError
from ..importer.registry import overload
from . import schema

#: A sample.json of more bytes is not read.
LARGEST_JSON = 1 << 27
#: Bytes that the inputs, and each tensor that the graph makes, may have: a sample is small, a bomb is not.
LARGEST_TENSORS = 1 << 31
#: Namespaces whose ops a sample may call: they compute, and touch no files.
NAMESPACES = ("aten", "prims")
_NOT = {"aten.from_file", "aten.set_", "aten.resize_"}


@dataclass
class Loaded:
    """A sample as a graph that runs."""

    sample: schema.Sample
    module: torch.fx.GraphModule  # called with the inputs one by one; each node carries meta["val"], a FakeTensor
    inputs: list[Any]


def load(folder: Path) -> Loaded:
    """The sample in a folder. Runs nothing of it. Raises UserError, with the reason, for what is no sample, is damaged
    or asks for more than a sample may."""
    text = _bytes_of(folder, schema.JSON_FILE, LARGEST_JSON)
    try:
        body = json.loads(text)
        given = body.pop("hash", None) if isinstance(body, dict) else None
        sample = schema.Sample.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        raise _refused(folder, f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise _refused(folder, f"{schema.JSON_FILE} is no JSON: {error}") from error
    tensors = _bytes_of(folder, schema.TENSOR_FILE, LARGEST_TENSORS)
    if len(tensors) != sample.tensor_bytes:
        raise _refused(
            folder, f"{schema.TENSOR_FILE} has {len(tensors)} bytes of {sample.tensor_bytes}: it was cut or replaced"
        )
    if sample.hash(tensors) != given:
        raise _refused(folder, "its hash is another: it was changed after it was saved")
    total = sum(_size(folder, spec) for spec in _specs(sample))
    if total > LARGEST_TENSORS:
        raise _refused(folder, f"its tensors take {total:,} bytes, more than {LARGEST_TENSORS:,}")
    try:
        inputs = [i.number if i.tensor is None else tensor_of(i.tensor, tensors) for i in sample.inputs]
        constants = {name: tensor_of(spec, tensors) for name, spec in sample.constants.items()}
        module = _graph(sample, constants)
    except (ValueError, KeyError, TypeError, RuntimeError, RecursionError) as error:
        raise _refused(folder, str(error)) from error
    _annotate(folder, module, inputs)
    return Loaded(sample, module, inputs)


def _refused(folder: Path, reason: str) -> UserError:
    return UserError(f"{folder} is refused as a graph sample: {reason}")


def _bytes_of(folder: Path, name: str, most: int) -> bytes:
    """The content of one of the sample's own files: a plain file, not a link to elsewhere."""
    path = folder / name
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        why = f"no graph sample in {folder}: cannot read {name} ({error.strerror})"
        raise UserError(f"{why}; `relaxgrad capture MODEL -o DIR` makes one") from error
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            raise _refused(folder, f"{name} is no plain file of at most {most:,} bytes")
        return file.read()


def _specs(sample: schema.Sample) -> list[schema.Tensor]:
    return [*(i.tensor for i in sample.inputs if i.tensor is not None), *sample.constants.values()]


def _size(folder: Path, spec: schema.Tensor) -> int:
    """Bytes of the memory of a tensor. Refuses a layout that is none."""
    dtype = getattr(torch, spec.dtype, None)
    if not isinstance(dtype, torch.dtype) or len(spec.size) != len(spec.stride):
        raise _refused(folder, f"a tensor of dtype {spec.dtype}, size {spec.size} and strides {spec.stride}")
    if any(n < 0 for n in (*spec.size, *spec.stride)) or (spec.start is None) == (spec.seed is None):
        raise _refused(folder, f"a tensor of size {spec.size} and strides {spec.stride} without a place")
    return schema.span(spec.size, spec.stride) * dtype.itemsize


def tensor_of(spec: schema.Tensor, tensors: bytes) -> torch.Tensor:
    """The tensor of a description. Raises ValueError where its bytes are not there."""
    if spec.start is None:
        return seeded(spec)
    dtype = getattr(torch, spec.dtype)
    count = schema.span(spec.size, spec.stride)
    end = spec.start + count * dtype.itemsize
    if end > len(tensors):
        raise ValueError(f"a tensor ends at byte {end} of {len(tensors)}")
    memory = torch.empty(count, dtype=dtype)
    if count:
        memory.view(torch.uint8).copy_(torch.frombuffer(bytearray(tensors[spec.start : end]), dtype=torch.uint8))
    return memory.as_strided(spec.size, spec.stride)


def seeded(spec: schema.Tensor) -> torch.Tensor:
    """A tensor drawn from its seed: normal numbers, or integers 0 and 1."""
    dtype = getattr(torch, spec.dtype)
    generator = torch.Generator().manual_seed(spec.seed or 0)
    count = schema.span(spec.size, spec.stride)
    if dtype.is_floating_point or dtype.is_complex:
        memory = torch.randn(count, generator=generator, dtype=torch.float32).to(dtype)
    else:
        memory = torch.randint(2, (count,), generator=generator).to(dtype)
    return memory.as_strided(spec.size, spec.stride)


def _graph(sample: schema.Sample, constants: dict[str, torch.Tensor]) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    nodes: dict[str, torch.fx.Node] = {}

    def known(name: Any) -> torch.fx.Node:
        if name not in nodes:
            raise ValueError(f"node {str(name)[:80]!r} is read before it is there")
        return nodes[name]

    for given in sample.inputs:
        _name(given.name, nodes)
        nodes[given.name] = graph.placeholder(given.name)
    root = torch.nn.Module()
    for node in sample.nodes:
        _name(node.name, nodes)
        args = tuple([schema.read(a, known) for a in node.args])
        kwargs = {key: schema.read(value, known) for key, value in node.kwargs.items()}
        if node.op == "constant":
            root.register_buffer(node.name, constants[node.target])
            nodes[node.name] = graph.create_node("get_attr", node.name, name=node.name)
            continue
        target = operator.getitem if node.op == "item" else _op(node.target)
        nodes[node.name] = graph.create_node("call_function", target, args, kwargs, name=node.name)
    graph.output(tuple([schema.read(value, known) for value in sample.returned]))
    for name, made in nodes.items():
        if made.name != name:
            raise ValueError(f"{name!r} is no name of a node")
    return torch.fx.GraphModule(root, graph)


def _name(name: str, nodes: dict[str, torch.fx.Node]) -> None:
    if not name.isidentifier() or name in nodes:
        raise ValueError(f"{name[:80]!r} is no name of a node, or that of two")


def _op(name: str) -> Any:
    namespace, _, rest = name.partition(".")
    if namespace not in NAMESPACES or rest.count(".") != 1 or f"{namespace}.{rest.split('.')[0]}" in _NOT:
        raise ValueError(f"{name[:80]!r} is no op that a sample may call")
    found = overload(name)
    if not isinstance(found, torch_api.OpOverload):
        raise ValueError(f"torch {torch.__version__} has no op {name[:80]!r}")
    return found


def _annotate(folder: Path, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Gives every node its FakeTensor, computes nothing, and refuses a graph whose tensors are too large."""
    try:
        torch_api.propagate_fakes(module, inputs)
    except Exception as error:  # arguments that an op does not take
        raise _refused(folder, f"its graph cannot run: {type(error).__name__}: {error}".splitlines()[0]) from error
    for node in module.graph.nodes:
        for leaf in torch_api.tree_leaves(node.meta.get("val")):
            if isinstance(leaf, torch.Tensor) and leaf.numel() * leaf.element_size() > LARGEST_TENSORS:
                raise _refused(folder, f"node {node.name} makes {leaf.numel() * leaf.element_size():,} bytes")


def run(module: torch.fx.GraphModule, inputs: Sequence[Any], seed: int) -> tuple[list[Any], dict[str, torch.Tensor]]:
    """Runs a graph in eager PyTorch on copies of the inputs: (what it returns, the new values of what it writes to).

    The random state is left as it was.
    """
    copies = [
        v.clone() if isinstance(v, torch.Tensor) and v.numel() == 0 else _copy(v) if isinstance(v, torch.Tensor) else v
        for v in inputs
    ]
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    given = dict(zip(placeholders, copies, strict=True))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        returned = list(module(*copies))
    return returned, {node.name: given[node] for node in written_by(module) if node in given}


def written_by(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The nodes that an op of the graph writes into."""
    found: list[torch.fx.Node] = []
    for node in module.graph.nodes:
        schema_ = getattr(node.target, "_schema", None)
        if schema_ is not None and schema_.is_mutable and node.args and isinstance(node.args[0], torch.fx.Node):
            found.append(node.args[0])
    return found


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, overlapping ones included."""
    size, stride = list(tensor.shape), list(tensor.stride())
    memory = tensor.detach().as_strided((schema.span(size, stride),), (1,), tensor.storage_offset()).clone()
    return memory.as_strided(size, stride)
