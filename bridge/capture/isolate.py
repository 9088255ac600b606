# SPDX-License-Identifier: Apache-2.0
"""Capturing a module without leaving a trace in it."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .. import pytree

_DICTIONARIES = ("_parameters", "_buffers", "_modules")


@contextlib.contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Puts the module and the random state back as they were.

    That is: buffers in value and identity, parameters in identity, gradients, the train/eval flags, every other
    attribute that `forward` may set (a cache, a step counter), and torch's CPU generator.
    """
    modules = list(module.modules())
    attributes = [dict(m.__dict__) for m in modules]
    members = [{name: dict(m.__dict__[name]) for name in _DICTIONARIES} for m in modules]
    buffers = [(b, b.detach().clone()) for b in module.buffers()]
    gradients = [(p, p.grad) for p in module.parameters()]
    random_state = torch.get_rng_state()
    try:
        yield
    finally:
        for m, attribute, member in zip(modules, attributes, members, strict=True):
            m.__dict__.clear()
            m.__dict__.update(attribute)
            for name, held in member.items():
                m.__dict__[name].clear()
                m.__dict__[name].update(held)
        with torch.no_grad():
            for buffer, value in buffers:
                if not _same(buffer, value):
                    buffer.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        torch.set_rng_state(random_state)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit equality, NaN included: an unchanged buffer is not written, so that its version stays."""
    return a.shape == b.shape and bool(torch.equal(a, b) or torch.allclose(a, b, 0.0, 0.0, equal_nan=True))


def copies(arguments: Any) -> Any:
    """Copies of all tensors in nested arguments, for a module that writes its inputs.

    Strides, `requires_grad` and the aliasing between the arguments are kept; what is not a tensor is the same object.
    """
    memo: dict[int, Any] = {}

    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        leaf = value if value.is_leaf else value.detach().requires_grad_(value.requires_grad)
        return copy.deepcopy(leaf, memo)

    return pytree.tree_map(one, arguments)
