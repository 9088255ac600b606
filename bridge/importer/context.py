"""What converters see: the state of the translation, and calls into ATen."""

from __future__ import annotations

from typing import Any

import torch.fx

from ..schemas import CapturedGraph
from .extern_calls import ExternCalls
from .state import Options, TranslationState


class ConversionContext(TranslationState):
    """The first argument of every converter, `ctx`."""

    def __init__(self, captured: CapturedGraph, options: Options):
        super().__init__(captured, options)
        self.extern = ExternCalls(self)

    def bound_arguments(self, node: torch.fx.Node) -> list[Any]:
        """Every argument of the op's schema in order, defaults filled in, FX nodes replaced by their values."""
        arguments = node.target._schema.arguments  # type: ignore[union-attr]  # an OpOverload
        bound: list[Any] = []
        for position, argument in enumerate(arguments):
            if position < len(node.args):
                value = node.args[position]
            elif argument.name in node.kwargs:
                value = node.kwargs[argument.name]
            else:
                value = argument.default_value
            bound.append(torch.fx.node.map_arg(value, lambda n: self.env[n]))
        return bound
