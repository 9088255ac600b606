# SPDX-License-Identifier: Apache-2.0
"""The ways to run an op, as data: for each overload a list of implementations, of every device or of one.

An implementation has a kind, may be a device's own, and may have conditions; the first one whose conditions hold
converts the node, in order of priority. Which that is can be asked without a translation: see `choose`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from .. import pytree, torch_api
from ..device import Device
from ..kinds import Kind, ReasonKind


class Refusal(Exception):
    """Raised by a converter that does not cover this call; the next implementation gets it, and ATen at last, with this
    reason."""

    def __init__(self, kind: ReasonKind, detail: str = ""):
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class Call:
    """A node as conditions see it, before anything is translated."""

    def __init__(self, node: torch.fx.Node, device: Device, tuned: frozenset[int] = frozenset()):
        self.node = node
        self.device = device
        self.tuned = tuned  # what the device measured: Device.tuned

    @property
    def fake(self) -> Any:
        """The FakeTensor (or tuple, or number) that the node gives."""
        return self.node.meta.get("val")

    @functools.cached_property
    def args(self) -> list[Any]:
        """Every argument of the op's schema in order, defaults filled in, nodes as their FakeTensors and SymInts."""
        return bound_arguments(self.node, lambda node: node.meta.get("val"))


def bound_arguments(node: torch.fx.Node, value_of: Callable[[torch.fx.Node], Any]) -> list[Any]:
    """Every argument of the op's schema in order, defaults filled in, FX nodes replaced by `value_of` them."""
    arguments = node.target._schema.arguments  # type: ignore[union-attr]  # an OpOverload
    bound: list[Any] = []
    for position, argument in enumerate(arguments):
        if position < len(node.args):
            value = node.args[position]
        elif argument.name in node.kwargs:
            value = node.kwargs[argument.name]
        else:
            value = argument.default_value
        bound.append(torch.fx.node.map_arg(value, value_of))
    return bound


@dataclass(frozen=True)
class Implementation:
    """One way to run one overload.

    `function(ctx, *args)` gets every argument of the op's schema, in order and with defaults filled in, so that no
    keyword can be dropped unseen. It returns one value, or a tuple with one entry an output (None for those it does not
    produce). `function=None` means: call the op itself in ATen (`library` kind).
    """

    overload: Any
    kind: Kind
    function: Callable[..., Any] | None
    produces: frozenset[int] | None = None  # outputs computed; None: all
    dtypes: frozenset[str] | None = None  # of the tensor inputs; None: all that TVM carries
    symbolic: bool = True  # takes symbolic sizes
    device: str | None = None  # torch's name of the only device that has it; None: every device
    when: Callable[[Call], bool] | None = None  # asked of a call that has what is said above; None: takes each
    priority: int = 0  # the highest comes first

    def refusal(self, call: Call, consumed: set[int]) -> Refusal | None:
        """Why this implementation is not for a call of which the outputs `consumed` are read; None where it is."""
        if self.produces is not None and not consumed <= self.produces:
            return Refusal(ReasonKind.OUTPUT, f"output {sorted(consumed - self.produces)} is not computed")
        if self.function is None:
            return None
        from .types import DTYPES, is_typed  # loads TVM, which those who read names alone do without

        inputs = [n.meta.get("val") for n in call.node.all_input_nodes]
        for value in [*inputs, *pytree.tree_leaves(call.fake)]:
            if not isinstance(value, torch.Tensor):
                continue
            if not is_typed(value, call.device):
                return Refusal(ReasonKind.OPAQUE, str(value.dtype).removeprefix("torch."))
            if not self.symbolic and torch_api.has_symbols(value):
                return Refusal(ReasonKind.SYMBOLIC)
        if self.dtypes is not None:
            for value in inputs:
                if isinstance(value, torch.Tensor) and DTYPES[value.dtype] not in self.dtypes:
                    return Refusal(ReasonKind.DTYPE, DTYPES[value.dtype])
        if self.when is not None and not self.when(call):
            return Refusal(ReasonKind.ARGUMENTS)
        return None


_REGISTRY: dict[Any, list[Implementation]] = {}
_loaded = False


def register(
    *overloads: Any,
    kind: Kind = Kind.NATIVE,
    produces: Iterable[int] | None = None,
    dtypes: Iterable[str] | None = None,
    symbolic: bool = True,
    device: str | None = None,
    when: Callable[[Call], bool] | None = None,
    priority: int = 0,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: this function converts these overloads. A device's own come before those of every device.

    Raises ValueError where an overload has an implementation of this device and priority already.
    """

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for overload in overloads:
            _add(
                Implementation(
                    overload,
                    kind,
                    function,
                    None if produces is None else frozenset(produces),
                    None if dtypes is None else frozenset(dtypes),
                    symbolic,
                    device,
                    when,
                    priority,
                )
            )
        return function

    return add


def register_library(*overloads: Any, priority: int = 0, device: str | None = None) -> None:
    """These overloads are ATen calls on purpose, on every device or on one."""
    for overload in overloads:
        _add(Implementation(overload, Kind.LIBRARY, None, device=device, priority=priority))


def _add(new: Implementation) -> None:
    if not isinstance(new.overload, torch_api.OpOverload):
        raise TypeError(f"an implementation is registered for an OpOverload, not for {new.overload!r}")
    known = _REGISTRY.setdefault(new.overload, [])
    if any((one.device, one.priority) == (new.device, new.priority) for one in known):
        raise ValueError(f"{new.overload} has an implementation of priority {new.priority} already")
    known.append(new)
    known.sort(key=lambda one: (one.device is None, -one.priority))


def registry() -> dict[Any, list[Implementation]]:
    """All implementations. Loads every file of `ops/` on first use; a device loads its own."""
    global _loaded
    if not _loaded:
        ops = importlib.import_module(f"{__package__}.ops")
        for module in pkgutil.iter_modules(ops.__path__):
            importlib.import_module(f"{ops.__name__}.{module.name}")
        _loaded = True
    return _REGISTRY


def implementations(op: Any, device: Device) -> Sequence[Implementation]:
    """Those of an op on a device, in the order in which they are tried; none of what is no OpOverload."""
    found = registry()
    device.load_implementations()
    return [one for one in found.get(op, ()) if one.device in (None, device.registered)]


def overload(name: str) -> Any | None:
    """The OpOverload called `namespace.op.overload` (as `aten.mm.default`), or None where this torch has none."""
    namespace, op, variant = name.split(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), op), variant)
    except (AttributeError, RuntimeError):
        return None


def registered(op: Any) -> bool:
    """Whether every device has an implementation of an overload already (for use while `ops/` loads)."""
    return any(one.device is None for one in _REGISTRY.get(op, ()))
