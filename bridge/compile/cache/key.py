# SPDX-License-Identifier: Apache-2.0
"""The key under which a compiled graph is kept: a hash of everything that decides what it becomes.

Note [What is in a key]
The graph: every node in order with its name, op, arguments and `meta["val"]` (of tensors dtype, device, layout, sizes,
strides, offset, and of a view whether it shares its base's memory); what each output of a forward graph means. Symbols
are numbered in order of appearance, with what is known of their values: another compilation of the same model calls
them something else. The values of the graph's constants are not in it: they stay with the graph at hand.
Around the graph: the backend's options, the device, its target and the machine, the versions, the sources of the
bridge, PyTorch's default dtype. What else a converter or a schedule comes to read from its surroundings belongs into
`environment`.

Two graphs that differ in any of these have different keys. Node names are in it because reports name nodes; AOTAutograd
names them by their ops, so that equal layers have equal names.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sympy
import torch
import torch.fx

from ... import torch_api
from ...device import Device
from ...importer.constants import attribute
from ...importer.views import VIEW_OPS
from ...schemas import CapturedGraph, GraphKind
from .text import NotPlain, encode

#: Version of entries and keys. Changing what they hold changes the sources of the bridge, and so the key, anyway.
FORMAT = 1

_BRIDGE = Path(__file__).parent.parent.parent
_PACKAGE = __name__.rpartition(".compile.")[0]


@dataclass(frozen=True)
class Key:
    """The name of an entry, and what this process calls the symbols that the entry numbers."""

    name: str  # hexadecimal
    symbols: tuple[str, ...]
    device: Device


def key_of(captured: CapturedGraph, options: Sequence[Any]) -> Key:
    """The key of a graph: see Note [What is in a key]. Raises NotPlain for a graph that has none."""
    text = _GraphText()
    graph = captured.module.graph
    roles = [o.role.value for o in captured.outputs] if captured.kind is GraphKind.FORWARD else []
    parts = [FORMAT, environment(captured.device), encode(list(options)), captured.kind.value, roles]
    digest = hashlib.sha256(repr(parts).encode())
    for node in graph.nodes:  # node by node: the lists of a whole large graph would keep the garbage collector busy
        digest.update(repr(text.node(captured.module, node)).encode())
    digest.update(repr(text.facts).encode())
    return Key(digest.hexdigest()[:40], tuple(map(str, text.numbers)), captured.device)


class _GraphText:
    """Writes the nodes of one graph."""

    def __init__(self) -> None:
        self.numbers: dict[sympy.Symbol, int] = {}
        self.facts: list[Any] = []  # of each symbol, in order of appearance
        self._expressions: dict[sympy.Expr, Any] = {}
        self._targets: dict[Any, Any] = {}
        self._plain_tensors = (torch_api.FakeTensor, torch.nn.Parameter)
        self._converters = getattr(sys.modules.get(f"{_PACKAGE}.importer.registry"), "_REGISTRY", {})

    def node(self, module: torch.fx.GraphModule, node: torch.fx.Node) -> list[Any]:
        val = node.meta.get("val")
        target: Any = node.target
        if node.op == "call_function":
            target = self._targets.get(node.target)
            if target is None:
                target = self._targets[node.target] = self._target(node.target)
        if node.op == "get_attr":
            val = attribute(module, node)
            if not isinstance(val, torch.Tensor):
                raise NotPlain(f"the attribute {node.target}, a value of type {type(val).__name__}")
        arguments = encode([node.args, node.kwargs], self._argument)
        text = [node.op, node.name, target, arguments, self.value(val)]
        if node.op == "call_function" and node.target in VIEW_OPS:
            base: Any = node.args[0].meta["val"]  # type: ignore[union-attr]  # the first argument of a view op is a tensor node
            leaves: Any = val if isinstance(val, list | tuple) else [val]
            text.append([torch_api.same_storage(leaf, base) for leaf in leaves])
        return text

    def _target(self, function: Any) -> Any:
        """What a node calls; of an op also what translation reads of it."""
        self._own_converter(function)
        text = encode(function)
        if text[0] == "op":
            text += [str(function._schema), sorted(tag.name for tag in function.tags)]
        return text

    def _own_converter(self, target: Any) -> None:
        """Raises NotPlain where this process converts an op by a function that is not the bridge's."""
        for way in self._converters.get(target, ()):
            function = way.function
            while isinstance(function, functools.partial):
                function = function.func
            if function is not None and not str(function.__module__).startswith(f"{_PACKAGE}."):
                raise NotPlain(f"a converter of {target} that {function.__module__} registered")

    def _argument(self, value: Any) -> Any:
        return ["node", value.name] if type(value) is torch.fx.Node else self.value(value)

    def value(self, value: Any) -> Any:
        """A leaf or a nest of what a node may return."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if torch_api.is_symint(value):
            return ["sym", type(value).__name__, self._number(value)]
        return encode(value, self._leaf)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) or torch_api.is_symint(value):
            return self.value(value)
        raise NotPlain(f"a value of type {type(value).__module__}.{type(value).__qualname__}")

    def _tensor(self, tensor: torch.Tensor) -> Any:
        kind = "tensor" if isinstance(tensor, self._plain_tensors) else type(tensor).__name__
        device, number = tensor.device, self._number
        shape = [n if type(n) is int else number(n) for n in tensor.shape]
        text = [kind, str(tensor.dtype), device.type, device.index, shape]
        if tensor.layout is torch.strided:
            stride = [n if type(n) is int else number(n) for n in tensor.stride()]
            return [*text, stride, number(tensor.storage_offset()), tensor.is_quantized]
        return [*text, str(tensor.layout)]

    def _number(self, number: Any) -> Any:
        """An int as it is, an expression over symbols as nested lists."""
        if type(number) is int:
            return number
        expr = torch_api.expr_of(number)
        if type(expr) is int:
            return expr
        symbols = getattr(expr, "free_symbols", None)
        if not symbols:
            return self._expression(expr)
        found = self._expressions.get(expr)
        if found is None:
            for symbol in sorted(symbols, key=str):
                self._appears(symbol, number)
            found = self._expressions[expr] = self._expression(expr)
        return found

    def _appears(self, symbol: sympy.Symbol, number: Any) -> None:
        if symbol not in self.numbers:
            self.numbers[symbol] = len(self.numbers)
            kind = str(symbol).rstrip("0123456789")  # a size, a float, a number that depends on data
            assumptions = sorted((name, bool(holds)) for name, holds in symbol.assumptions0.items())
            self.facts.append([kind, assumptions, torch_api.symbol_bounds(number, symbol)])

    def _expression(self, expr: Any) -> Any:
        if isinstance(expr, sympy.Symbol):
            return ["$", self.numbers[expr]]
        if not isinstance(expr, sympy.Basic):
            return encode(expr)
        if not expr.args:
            return [type(expr).__name__, sympy.srepr(expr)]
        parts = [self._expression(arg) for arg in expr.args]
        if isinstance(expr, sympy.Add | sympy.Mul):  # sympy orders these by the names of the symbols
            parts.sort(key=repr)
        return [type(expr).__name__, parts]


def environment(device: Device) -> list[Any]:
    """What decides the code beside the graph and the options."""
    return [sources(), *_installation(), device.name, *device.fingerprint(), str(torch.get_default_dtype())]


@functools.cache
def _installation() -> list[Any]:
    """Versions."""
    packages = ("torch", "apache-tvm", "apache-tvm-ffi")
    versions = [importlib.metadata.version(package) for package in packages]
    return [versions, str(torch.version.git_version)]


@functools.cache
def sources() -> str:
    """A hash of every source file of the bridge."""
    digest = hashlib.sha256()
    for path in _source_files(_BRIDGE):
        content = Path(path).read_bytes()
        digest.update(f"{os.path.relpath(path, _BRIDGE)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def changed_since(time: float) -> bool:
    """Whether a source file of the bridge was written after `time` (seconds since the epoch): what this process runs is
    then not what `sources` hashes."""
    try:
        return any(os.stat(path).st_mtime > time for path in _source_files(_BRIDGE))
    except FileNotFoundError:
        return True


@functools.cache
def _source_files(folder: Path) -> list[str]:
    found = [os.path.join(inner, name) for inner, _, names in os.walk(folder) for name in names if name.endswith(".py")]
    return sorted(found)
