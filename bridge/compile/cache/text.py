# SPDX-License-Identifier: Apache-2.0
"""Values as nested lists of JSON and back, exactly: what a key is made of, and what a stored plan is written in.

`encode` is injective: values that differ in anything a graph may depend on (True, 1 and 1.0; 0.0 and -0.0; a list and
a tuple; two dtypes) have different texts. What it cannot carry faithfully (a Python object, a user's own function, a
submodule) raises NotPlain, and the graph is then not cached.

Note [Tags]
None, bools, ints and strings stand for themselves. Everything else is a list that starts with a tag.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ... import plan, torch_api
from ...importer.registry import overload
from ...kinds import Kernel, Kind, Reason, ReasonKind


class NotPlain(Exception):
    """A value that has no text."""


#: The dataclasses and enums that a stored plan is made of, by name.
_CLASSES: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        plan.CallingPlan, plan.ExternCall, plan.FromConstant, plan.FromFunction,
        plan.FromInput, plan.FromScalar, plan.InPlace, plan.Mutation,
        plan.NodeReport, plan.OpaqueParam, plan.ScalarParam, plan.ScalarRef,
        plan.ExternResult, plan.Strided, plan.SymbolSource, plan.TensorArg,
        plan.TensorParam, Kernel, Kind, Reason, ReasonKind,
    )
}  # fmt: skip

#: Where functions that a graph calls may come from: with the versions in the key, their names say what they do.
_PACKAGES = ("builtins", "operator", "_operator", "math", "torch", "relaxgrad.bridge")

Other = Callable[[Any], Any]


def _refuse(value: Any) -> Any:
    raise NotPlain(f"a value of type {type(value).__module__}.{type(value).__qualname__}")


def encode(value: Any, other: Other = _refuse) -> Any:
    """The text of `value`; `other` gives that of anything this file does not know, or raises NotPlain."""
    kind = type(value)
    if value is None or kind is bool or kind is int or kind is str:
        return value
    writer = _WRITERS.get(kind)
    if writer is not None:
        return writer(value, other)
    if kind is torch.fx.Node:
        return other(value)
    if isinstance(value, list):  # torch.fx has lists and dicts of its own
        return ["list", [encode(v, other) for v in value]]
    if isinstance(value, dict):
        return ["dict", [[encode(k, other), encode(v, other)] for k, v in value.items()]]
    overloads, higher = _op_classes()
    if isinstance(value, overloads):
        return ["op", _op_name(value)]
    if isinstance(value, higher):
        return ["higher", _higher_name(value)]
    if isinstance(value, enum.Enum) and kind.__name__ in _CLASSES:
        return ["enum", kind.__name__, value.value]
    if dataclasses.is_dataclass(value) and _CLASSES.get(kind.__name__) is kind:
        fields = [encode(getattr(value, f.name), other) for f in dataclasses.fields(value)]
        return ["data", kind.__name__, fields]
    if callable(value) and (name := _function_name(value)) is not None:
        return ["function", *name]
    return other(value)


def decode(text: Any) -> Any:
    """The value of a text. Raises KeyError, AttributeError, ValueError or the like for one that encode did not make."""
    if not isinstance(text, list):
        return text
    return _READERS[text[0]](*text[1:])


def _items(tag: str) -> Callable[[Any, Other], Any]:
    return lambda value, other: [tag, [encode(v, other) for v in value]]


def _text(tag: str) -> Callable[[Any, Other], Any]:
    return lambda value, _: [tag, str(value).removeprefix("torch.")]


@functools.cache
def _op_of(name: str) -> Any:
    found = overload(name)
    if found is None:
        raise KeyError(name)
    return found


_WRITERS: dict[type, Callable[[Any, Other], Any]] = {
    float: lambda value, _: ["float", value.hex()],
    complex: lambda value, _: ["complex", value.real.hex(), value.imag.hex()],
    tuple: _items("tuple"),
    torch.Size: _items("size"),
    slice: lambda value, other: ["slice", [encode(v, other) for v in (value.start, value.stop, value.step)]],
    type(...): lambda value, _: ["ellipsis"],
    torch.dtype: _text("torch"),
    torch.layout: _text("torch"),
    torch.memory_format: _text("torch"),
    torch.device: lambda value, _: ["device", value.type, value.index],
}

_READERS: dict[str, Callable[..., Any]] = {
    "float": float.fromhex,
    "complex": lambda real, imag: complex(float.fromhex(real), float.fromhex(imag)),
    "tuple": lambda items: tuple([decode(i) for i in items]),
    "size": lambda items: torch.Size([decode(i) for i in items]),
    "list": lambda items: [decode(i) for i in items],
    "dict": lambda items: {decode(k): decode(v) for k, v in items},
    "slice": lambda items: slice(*[decode(i) for i in items]),
    "ellipsis": lambda: ...,
    "torch": lambda name: getattr(torch, name),
    "device": torch.device,
    "op": _op_of,
    "higher": lambda name: getattr(torch.ops.higher_order, name),
    "enum": lambda name, value: _CLASSES[name](value),
    "data": lambda name, fields: _CLASSES[name](*[decode(f) for f in fields]),
    "function": lambda module, name: getattr(importlib.import_module(module), name),
}


@functools.cache
def _op_classes() -> tuple[Any, Any]:
    return torch_api.OpOverload, torch_api.HigherOrderOperator


@functools.cache
def _op_name(op: Any) -> str:
    """`aten.mm.default`, for an op that is found under this name."""
    name = str(op)
    if name.count(".") != 2 or overload(name) is not op:
        raise NotPlain(f"the op {name}, which torch.ops does not have under its name")
    return name


def _higher_name(op: Any) -> str:
    name = str(op)
    if getattr(torch.ops.higher_order, name, None) is not op:
        raise NotPlain(f"the op {name}, which torch.ops.higher_order does not have under its name")
    return name


def _function_name(function: Any) -> tuple[str, str] | None:
    """(module, name) of a function of torch, Python or the bridge that is found there; None for any other."""
    module, name = getattr(function, "__module__", None), getattr(function, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    if not any(module == p or module.startswith(p + ".") for p in _PACKAGES):
        return None
    found = getattr(importlib.import_module(module), name, None)
    return (module, name) if found is function else None
