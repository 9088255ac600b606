"""Converters keyed by OpOverload object: one registry for every op of a training graph."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .. import torch_api
from ..kinds import Kind, ReasonKind


class Refusal(Exception):
    """Raised by a converter that does not cover this call; the node then runs in ATen with this reason."""

    def __init__(self, kind: ReasonKind, detail: str = ""):
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True)
class Converter:
    """How one overload is translated.

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


_REGISTRY: dict[Any, Converter] = {}
_loaded = False


def register(
    *overloads: Any,
    kind: Kind = Kind.NATIVE,
    produces: Iterable[int] | None = None,
    dtypes: Iterable[str] | None = None,
    symbolic: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: this function converts these overloads. Raises ValueError where one has a converter already."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for overload in overloads:
            _add(
                Converter(
                    overload,
                    kind,
                    function,
                    None if produces is None else frozenset(produces),
                    None if dtypes is None else frozenset(dtypes),
                    symbolic,
                )
            )
        return function

    return add


def register_library(*overloads: Any) -> None:
    """These overloads are ATen calls on purpose."""
    for overload in overloads:
        _add(Converter(overload, Kind.LIBRARY, None))


def _add(converter: Converter) -> None:
    if not isinstance(converter.overload, torch_api.OpOverload):
        raise TypeError(f"a converter is registered for an OpOverload, not for {converter.overload!r}")
    if converter.overload in _REGISTRY:
        raise ValueError(f"{converter.overload} has a converter already")
    _REGISTRY[converter.overload] = converter


def registry() -> dict[Any, Converter]:
    """All converters. Loads every file of `ops/` on first use."""
    global _loaded
    if not _loaded:
        from . import ops

        for module in pkgutil.iter_modules(ops.__path__):
            importlib.import_module(f"{ops.__name__}.{module.name}")
        _loaded = True
    return _REGISTRY


def overload(name: str) -> Any | None:
    """The OpOverload called `namespace.op.overload` (as `aten.mm.default`), or None where this torch has none."""
    namespace, op, variant = name.split(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), op), variant)
    except (AttributeError, RuntimeError):
        return None


def registered(op: Any) -> bool:
    """Whether an overload has a converter already (for use while `ops/` loads)."""
    return op in _REGISTRY
