# SPDX-License-Identifier: Apache-2.0
"""Equal computations have equal keys and become one kernel; those that differ in anything have keys of their own."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from tvm import relax, te, tirx

from relaxgrad.bridge.backend import relaxgrad
from relaxgrad.bridge.importer import state
from relaxgrad.bridge.importer.kernel_dedup import key_of


def tensor(*shape: Any, dtype: str = "float32", name: str = "x") -> relax.Var:
    return relax.Var(name, relax.TensorType(list(shape), dtype))


def scaled(by: Any) -> Callable[[te.Tensor], Any]:
    return lambda x: x * by


def key(by: Any) -> Any:
    return key_of(scaled(by), [tensor(2, 3)], [])


@dataclass(frozen=True)
class Frozen:
    rows: Any


@dataclass
class Open:
    rows: int


SIZE = tirx.Var("s0", "int64")


@pytest.mark.parametrize(
    "value",
    [
        2,
        0.5,
        True,
        None,
        "a",
        (1, (2.0,)),
        torch.float32,
        Frozen(3),
        SIZE * 2 + 1,
        scaled(3),
        tirx.sqrt,
        tirx.Not,
        math.exp,
    ],
)
def test_what_is_closed_over_is_part_of_the_key(value: Any) -> None:
    assert key(value) is not None
    assert key(value) == key(value)
    assert key(value) != key(7)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ((1, 2), (2, 1)),
        (Frozen(1), Frozen(2)),
        (scaled(1), scaled(2)),
        (functools.partial(scaled, 1), functools.partial(scaled, 2)),
        (SIZE + 1, SIZE + 2),
        (SIZE + 1, SIZE - 1),
        (tirx.const(1, "int64"), tirx.const(1, "int32")),
        (tirx.const(0.0, "float32"), tirx.const(-0.0, "float32")),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x, k=1: x + k, lambda x, k=2: x + k),
    ],
)
def test_values_that_differ_have_keys_that_differ(one: Any, other: Any) -> None:
    assert key(one) is not None
    assert key(other) is not None
    assert key(one) != key(other)


@pytest.mark.parametrize("value", [[1], {"a": 1}, object(), Open(1), tensor(2), torch.ones(1), Frozen([1]), [].append])
def test_what_may_change_has_no_key(value: Any) -> None:
    assert key(value) is None


def test_a_function_that_calls_itself_has_no_key() -> None:
    def power(x: Any, n: int = 3) -> Any:
        return x * power(x, n - 1) if n else x

    assert key_of(power, [tensor(2)], []) is None


def test_a_size_of_very_many_terms_has_no_key() -> None:
    assert key(sum([SIZE] * 5000, SIZE)) is None


def test_tensors_and_arguments_are_part_of_the_key() -> None:
    f = scaled(2)
    keys = [
        key_of(f, [tensor(2, 3)], []),
        key_of(f, [tensor(3, 2)], []),
        key_of(f, [tensor(2, SIZE)], []),
        key_of(f, [tensor(2, 3, dtype="float64")], []),
        key_of(f, [tensor(2, 3), tensor(2, 3)], []),
        key_of(f, [tensor(2, 3)], [[2, 3]]),
        key_of(f, [tensor(2, 3)], [(2, 3)]),
        key_of(f, [tensor(2, 3)], [[3, 2]]),
    ]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    assert key_of(f, [tensor(2, 3, name="y")], []) == keys[0]


class Block(nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.norm, self.linear, self.number = nn.LayerNorm(16), nn.Linear(16, 16), number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.linear(self.norm(x))) * self.number


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_layer_that_is_repeated_is_translated_once(dynamic: bool) -> None:
    def made(numbers: list[float]) -> int:
        """Kernels that are built for a model of so many layers, which is held against eager."""
        torch.manual_seed(0)
        torch.compiler.reset()
        model = nn.Sequential(*map(Block, numbers))
        x = torch.randn(5, 16)
        with mock.patch.object(state, "make_kernel", side_effect=state.make_kernel) as built:
            compiled = torch.compile(
                model, backend=relaxgrad, dynamic=dynamic, options={"cache": "off", "compile_in": "here"}
            )
            compiled(x).square().mean().backward()
            count = built.call_count
        found = {name: p.grad for name, p in model.named_parameters()}
        model.zero_grad()
        model(x).square().mean().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            assert parameter.grad.abs().max() > 0
            torch.testing.assert_close(found[name], parameter.grad)
        return count

    two = made([0.5] * 2)
    assert made([0.5] * 4) == two
    other = made([0.5, 0.25, 0.5, 0.25])
    assert other > two or dynamic  # each number is in kernels of its own; with dynamic=True it is an input
