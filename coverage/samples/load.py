# SPDX-License-Identifier: Apache-2.0
"""Reads a sample: what is refused, and the graph and inputs that it holds."""

from __future__ import annotations

import json
import keyword
import math
import operator
import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.fx
from pydantic import ValidationError

from relaxgrad.bridge import pytree, torch_api
from relaxgrad.bridge.device import host
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.importer.registry import overload

from . import schema

#: A sample.json of more bytes is not read.
LARGEST_JSON = 1 << 25
#: Bytes that the inputs, and each tensor that the graph makes, may have: a sample is small, a bomb is not.
LARGEST_TENSORS = 1 << 31
#: Bytes that the tensors of a graph may have at any time while it runs.
LARGEST_ALIVE = 1 << 33
#: Namespaces whose ops a sample may call.
NAMESPACES = ("aten", "prims")


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
    tensors = _bytes_of(folder, schema.TENSOR_FILE, LARGEST_TENSORS)
    try:
        body = json.loads(text, parse_float=_finite, parse_constant=_finite)
        given = body.pop("hash", None) if isinstance(body, dict) else None
        sample = schema.Sample.model_validate(body)
        found = sample.hash(tensors)
    except ValidationError as error:
        first = error.errors()[0]
        raise _refused(folder, f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise _refused(folder, f"{schema.JSON_FILE} is no JSON: {error}") from error
    if len(tensors) != sample.tensor_bytes:
        raise _refused(
            folder, f"{schema.TENSOR_FILE} has {len(tensors)} bytes of {sample.tensor_bytes}: it was cut or replaced"
        )
    if found != given:
        raise _refused(folder, "its hash is another: it was changed after it was saved")
    total = sum(_size(folder, spec) for spec in _specs(sample))
    if total > LARGEST_TENSORS:
        raise _refused(folder, f"its tensors take {total:,} bytes, more than {LARGEST_TENSORS:,}")
    try:
        inputs = [i.number if i.tensor is None else tensor_of(i.tensor, tensors) for i in sample.inputs]
        constants = {name: tensor_of(spec, tensors) for name, spec in sample.constants.items()}
        module = _graph(sample, constants)
    except Exception as error:  # torch has many ways to say that it cannot
        raise _refused(folder, str(error)) from error
    _annotate(folder, module, inputs)
    _check_results(folder, sample, module)
    return Loaded(sample, module, inputs)


def _finite(text: str) -> float:
    """A number of JSON. What is infinite or none at all stands in a sample as text, see schema.py."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:40]} is no number of it")
    return number


def _refused(folder: Path, reason: str) -> UserError:
    line = schema.plain((reason.splitlines() or [""])[0])[:300]  # the sample's author has a say in it
    return UserError(f"{folder} is refused as a graph sample: {line}")


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
        return file.read(status.st_size)


def _specs(sample: schema.Sample) -> list[schema.Tensor]:
    return [*(i.tensor for i in sample.inputs if i.tensor is not None), *sample.constants.values()]


def _size(folder: Path, spec: schema.Tensor) -> int:
    """Bytes that it takes to make a tensor: of an element, the wider of what is drawn and what it becomes. Refuses a
    layout that is none."""
    if len(spec.size) != len(spec.stride):
        raise _refused(folder, f"a tensor of size {spec.size} and strides {spec.stride}")
    if any(n < 0 for n in (*spec.size, *spec.stride)) or (spec.start is None) == (spec.seed is None):
        raise _refused(folder, f"a tensor of size {spec.size} and strides {spec.stride} without a place")
    dtype = schema.DTYPES[spec.dtype]
    return schema.span(spec.size, spec.stride) * max(dtype.itemsize, 0 if spec.seed is None else _drawn(dtype).itemsize)


def _drawn(dtype: torch.dtype) -> torch.dtype:
    """What `seeded` draws before it becomes `dtype`."""
    return torch.float32 if dtype.is_floating_point or dtype.is_complex else torch.int64


def tensor_of(spec: schema.Tensor, tensors: bytes) -> torch.Tensor:
    """The tensor of a description. Raises ValueError where its bytes are not there, or are none of its dtype."""
    if spec.start is None:
        return seeded(spec)
    dtype = schema.DTYPES[spec.dtype]
    count = schema.span(spec.size, spec.stride)
    end = spec.start + count * dtype.itemsize
    if end > len(tensors):
        raise ValueError(f"a tensor ends at byte {end} of {len(tensors)}")
    memory = torch.empty(count, dtype=dtype)
    if count:
        given = torch.frombuffer(bytearray(tensors[spec.start : end]), dtype=torch.uint8)
        if dtype is torch.bool and bool((given > 1).any()):
            raise ValueError("a bool is neither 0 nor 1")
        memory.view(torch.uint8).copy_(given)
    return memory.as_strided(spec.size, spec.stride)


def seeded(spec: schema.Tensor) -> torch.Tensor:
    """A tensor drawn from its seed: normal numbers, or integers 0 and 1."""
    dtype = schema.DTYPES[spec.dtype]
    generator = torch.Generator().manual_seed(spec.seed or 0)
    count = schema.span(spec.size, spec.stride)
    drawn = _drawn(dtype)
    if drawn.is_floating_point:
        memory = torch.randn(count, generator=generator, dtype=drawn).to(dtype)
    else:
        memory = torch.randint(2, (count,), generator=generator, dtype=drawn).to(dtype)
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
        target = _item(args, kwargs) if node.op == "item" else _op(node.target, args, kwargs)
        nodes[node.name] = graph.create_node("call_function", target, args, kwargs, name=node.name)
    returned = [schema.read(value, known) for value in sample.returned]
    if not all(value is None or isinstance(value, torch.fx.Node | bool | int | float) for value in returned):
        raise ValueError("it returns what is neither a node nor a number")
    graph.output(tuple(returned))
    for name, made in nodes.items():
        if made.name != name:
            raise ValueError(f"{name!r} is no name of a node")
    return torch.fx.GraphModule(root, graph)


def _name(name: str, nodes: dict[str, torch.fx.Node]) -> None:
    if name in nodes:
        raise ValueError(f"{name!r} is the name of two nodes")
    if keyword.iskeyword(name):
        raise ValueError(f"{name!r} is no name of a node")


def _item(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs or [type(a) for a in args] != [torch.fx.Node, int]:
        raise ValueError("an item is asked of what is no node, or by what is no number")
    return operator.getitem


def _op(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The overload of a call that only computes: its schema says what it returns and what it writes to."""
    namespace, _, rest = name.partition(".")
    found = overload(name) if namespace in NAMESPACES and rest.count(".") == 1 else None
    if not isinstance(found, torch_api.OpOverload):
        raise ValueError(f"{name[:80]!r} is no op that a sample may call, or none of torch {torch.__version__}")
    signature = found._schema
    names = {argument.name for argument in signature.arguments}
    if unknown := kwargs.keys() - names:  # they become Python source
        raise ValueError(f"{name} has no argument {sorted(unknown)[0][:80]!r}")
    if signature.is_mutable and not (
        found is torch.ops.aten.copy_.default and isinstance(args[0], torch.fx.Node) and args[0].op == "placeholder"
    ):
        raise ValueError(f"{name} writes into an argument; a sample may only copy_ into its inputs")
    if not signature.returns or any(str(r.type) not in ("Tensor", "List[Tensor]") for r in signature.returns):
        raise ValueError(f"{name} returns something else than tensors")
    if "filename" in names:
        raise ValueError(f"{name} reads a file")
    return found


def _annotate(folder: Path, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Gives every node its FakeTensor, computes nothing, and refuses a graph whose tensors are too large or are not
    plain memory of the CPU."""
    last: dict[torch.fx.Node, torch.fx.Node] = {}  # of each node, the one that reads it last
    for node in module.graph.nodes:
        last |= dict.fromkeys(node.all_input_nodes, node)
    sizes: Counter[torch.fx.Node] = Counter()
    alive = 0

    def check(node: torch.fx.Node, value: Any) -> None:
        nonlocal alive
        if node.op == "output":
            return
        leaves = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        sizes[node] = sum(_checked(node, leaf) for leaf in leaves)
        alive += sizes[node]
        if alive > LARGEST_ALIVE:
            raise ValueError(f"at node {node.name} it holds {alive:,} bytes")
        done = {read for read in (*node.all_input_nodes, node) if last.get(read, node) is node}
        alive -= sum(sizes.pop(read, 0) for read in done)

    try:
        torch_api.propagate_fakes(module, inputs, check)
    except Exception as error:  # arguments that an op does not take
        raise _refused(folder, f"its graph cannot run: {type(error).__name__}: {error}") from error


def _checked(node: torch.fx.Node, tensor: torch.Tensor) -> int:
    """Bytes of a tensor that a node makes. Raises ValueError for one that a sample does not hold."""
    bytes_ = tensor.numel() * tensor.element_size()
    if bytes_ > LARGEST_TENSORS:
        raise ValueError(f"node {node.name} makes {bytes_:,} bytes")
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout is not torch.strided or tensor.device.type != host().name or dtype not in schema.DTYPES:
        raise ValueError(f"node {node.name} makes a tensor of {dtype}, {tensor.layout}, on {tensor.device}")
    there = _memory(node, tensor)
    end = tensor.storage_offset() + schema.span(list(tensor.shape), list(tensor.stride()))
    if bytes_ and end * tensor.element_size() > there:
        raise ValueError(f"node {node.name} reads past the end of its memory")
    node.meta.setdefault("memory", there)
    return bytes_


def _memory(node: torch.fx.Node, tensor: torch.Tensor) -> int:
    """Bytes of the memory that a tensor lies in: of a view, those of what it views.

    A FakeTensor's memory does not tell: a view past its end makes it larger.
    """
    for viewed in node.all_input_nodes:
        value = viewed.meta["val"]
        if isinstance(value, torch.Tensor) and torch_api.same_storage(value, tensor):
            return int(viewed.meta["memory"])
    return tensor.untyped_storage().nbytes()


def _check_results(folder: Path, sample: schema.Sample, module: torch.fx.GraphModule) -> None:
    """Refuses a sample that says of other results than its graph has."""
    if len(sample.outputs) != len(sample.returned):
        raise _refused(folder, f"it has {len(sample.outputs)} outputs and its graph returns {len(sample.returned)}")
    if sample.written.keys() != (names := {node.name for node in written_by(module)}):
        raise _refused(
            folder, f"its graph writes to {', '.join(sorted(names)) or 'nothing'}, which is not what it says"
        )


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
