# SPDX-License-Identifier: Apache-2.0
"""A training problem: a module in train mode, its inputs, its loss. What the zoo and a user's factory both become."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from relaxgrad.bridge.capture import OnRun
    from relaxgrad.bridge.schemas import CapturedGraph


@dataclass
class Problem:
    """One training problem, ready to run. Filled by the zoo's factories and by models.py."""

    module: nn.Module  # in train mode
    args: tuple[Any, ...] = ()  # positional inputs of module.forward
    kwargs: dict[str, Any] = field(default_factory=dict)  # keyword inputs of module.forward
    loss_fn: Callable[[Any], Tensor] | None = None  # output of the module -> 0-d loss; None: `output_loss`
    compile_loss: bool = True  # whether the loss is part of the compiled function, as in people's training loops

    def step_function(self) -> nn.Module:
        """What a candidate compiles: module and loss as one module, or the bare module (`compile_loss` False)."""
        return WithLoss(self.module, self.loss) if self.compile_loss else self.module

    def loss(self, output: Any) -> Tensor:
        """The 0-d loss of a module's output."""
        return output_loss(output) if self.loss_fn is None else self.loss_fn(output)

    def loss_of(self, output: Any) -> Tensor:
        """The 0-d loss from what `step_function()`, or a compiled one, returned."""
        return output if self.compile_loss else self.loss(output)

    def capture(self, on_run: OnRun | None = None) -> list[CapturedGraph]:
        """The graphs of one training step of `step_function()`. Raises UserError as `capture_pair`, which does it."""
        from relaxgrad.bridge.capture import capture_pair

        loss = self.loss if self.compile_loss else None
        return capture_pair(self.module, self.args, self.kwargs, loss=loss, on_run=on_run)

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Trainable parameters by name; tied ones once."""
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    def parameter_count(self) -> int:
        """Number of scalars in all parameters; tied ones once."""
        return sum(p.numel() for p in self.module.parameters())

    def input_shapes(self) -> list[str]:
        """The shape of each tensor among the inputs, after the name of a keyword, as "input_ids 4x128"."""
        named = [("", t) for t in tensors_in(self.args)]
        named += [(name, t) for name, value in self.kwargs.items() for t in tensors_in(value)]
        return [f"{name} {'x'.join(map(str, t.shape)) or 'a number'}".strip() for name, t in named]


class WithLoss(nn.Module):
    """A module followed by its loss: forward returns the 0-d loss alone."""

    def __init__(self, module: nn.Module, loss: Callable[[Any], Tensor]):
        super().__init__()
        self.module = module
        self.loss = loss

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.loss(self.module(*args, **kwargs))


def output_loss(output: Any) -> Tensor:
    """The loss where none was given: the output's own (`.loss`, `["loss"]`, or a 0-d output), else its mean square.

    The mean square is summed over the floating-point tensors of a tuple, list or mapping. Raises ValueError where
    the output holds no floating-point tensor.
    """
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, Tensor):
        return own
    if isinstance(output, Tensor) and output.ndim == 0:
        return output
    terms = [t.square().mean() for t in tensors_in(output) if t.is_floating_point()]
    if not terms:
        raise ValueError("the module's output holds no floating-point tensor to make a loss of")
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def tensors_in(value: Any) -> list[Tensor]:
    """Every tensor in nested tuples, lists and mappings, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in tensors_in(item)]
    return []


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """`value` with every tensor in nested tuples, lists and dicts replaced by `function(tensor)`.

    A tensor that occurs twice is mapped once: what was one tensor stays one.
    """
    mapped: dict[int, Tensor] = {}

    def walk(value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) not in mapped:
                mapped[id(value)] = function(value)
            return mapped[id(value)]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(walk, value))
        if isinstance(value, (tuple, list)):
            return type(value)(map(walk, value))
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items()}
        return value

    return walk(value)


def copy_tensors(value: Any, widen: bool = False) -> Any:
    """`value` with every tensor copied as a leaf, one that occurs twice copied once.

    `widen`: floating point becomes float64 and complex complex128.
    """

    def copy(tensor: Tensor) -> Tensor:
        new = tensor.detach().clone()  # keeps the strides of a dense tensor
        if widen:
            new = new.double() if new.is_floating_point() else new.to(torch.complex128) if new.is_complex() else new
        return new.requires_grad_(tensor.requires_grad)

    return map_tensors(value, copy)


def seed_everything(seed: int) -> None:
    """Seed torch, random and numpy: factories use any of them, and so do modules (BigBird picks blocks with numpy)."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def random_state() -> tuple[Any, ...]:
    """The states that `seed_everything` seeds."""
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def set_random_state(state: tuple[Any, ...]) -> None:
    """Goes back to a state that `random_state` gave."""
    torch.set_rng_state(state[0])
    random.setstate(state[1])
    np.random.set_state(state[2])
