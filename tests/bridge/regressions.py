# SPDX-License-Identifier: Apache-2.0
"""One program run twice, in eager and compiled by the bridge, and everything compared that a user can see."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.kinds import ReasonKind
from relaxgrad.bridge.schemas import GraphRecord
from relaxgrad.coverage.harness.numbers import AS_EAGER, compare_all, float64_run, same
from tests.bridge.expected_fallbacks import FALLBACKS

Compile = Callable[..., Any]

#: A user's whole flow: gets what compiles a module or function, returns what the user sees, by name.
Program = Callable[[Compile], dict[str, Any]]

#: Reasons that are bugs of the bridge, not limits of it.
BUGS = frozenset({ReasonKind.COMPILE, ReasonKind.TYPE_CHECK})


def agree(
    program: Program,
    *,
    exact: Program | None = None,
    traced: bool = False,
    fallbacks: Collection[str] = (),
    strides: bool = True,
    seed: int = 0,
    **options: Any,
) -> list[GraphRecord]:
    """Runs `program` in eager and compiled and fails unless what it returns is the same; returns the compiled graphs.

    Compared of a tensor: dtype, shape, strides, requires_grad, values. A float that is not eager's to the bit is held
    to the float64 rule, against `program` in float64. `exact` is for programs of another dtype than float32 or with
    graphs for bodies: the same, in float64 by itself. `traced`: eager's side is PyTorch's own kernels in the graphs
    that Dynamo makes, for code that computes otherwise when it is traced. The ops in `fallbacks`, and no others, must
    fall back to ATen.
    A graph that failed to compile fails the test whatever the values, and so does a program of which nothing was
    compiled.
    """

    def seeded(program: Program, compile: Compile = lambda function: function) -> dict[str, Any]:
        torch.compiler.reset()
        torch.manual_seed(seed)
        return program(compile)

    def in_float64() -> dict[str, Any]:
        if exact is not None:
            return seeded(exact)
        with float64_run():
            return seeded(program)

    def by(backend: Any) -> Compile:
        return lambda function: torch.compile(function, backend=backend, **options)

    expected = seeded(program, by("aot_eager")) if traced else seeded(program)
    with record_graphs() as records:
        found = seeded(program, by(relaxgrad))
    assert expected.keys() == found.keys()
    assert expected, "the program shows nothing"
    wrong = _differences(expected, found, strides, in_float64)
    assert not wrong, "\n".join(wrong)
    assert records, "nothing was compiled"
    bugs = [str(r) for record in records for r in record.reasons if r.kind in BUGS]
    assert not bugs, "\n".join(bugs)
    fallen = [str(r) for record in records for r in record.reasons if r.op not in fallbacks]
    assert not fallen, "\n".join(fallen)
    gone = set(fallbacks) - {r.op for record in records for r in record.reasons}
    assert not gone, f"{sorted(gone)} no longer fall back: take them out of the table"
    return records


def seen(value: Any) -> Any:
    """A deep copy of what the user sees now, strides and requires_grad kept: later writes do not change it."""
    return pytree.tree_map(_seen, value)


def _seen(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return copy.deepcopy(value)
    source = value.detach().resolve_neg().resolve_conj()
    span = torch.empty_strided(source.shape, source.stride(), dtype=source.dtype)
    if source.numel():
        span.copy_(source) if not _overlaps(source) else span.set_(source.clone().expand(source.shape))
    return span.requires_grad_(value.requires_grad)


def _overlaps(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors lie in the same memory."""
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def grads(module: torch.nn.Module) -> dict[str, Any]:
    """Copies of the gradients of all parameters, None included."""
    return {f"grad {n}": None if p.grad is None else p.grad.clone() for n, p in module.named_parameters()}


def _differences(
    expected: dict[str, Any], shown: dict[str, Any], strides: bool, in_float64: Callable[[], dict[str, Any]]
) -> list[str]:
    """What differs, a line each. `in_float64` gives the reference, and runs only where a float is not eager's."""
    left, right = _leaves(expected), _leaves(shown)
    if left.keys() != right.keys():
        return [f"{sorted(right)} instead of {sorted(left)}"]
    moved, wrong = [], []
    for name, a in left.items():
        if why := _difference(a, right[name], strides):
            wrong.append(f"{name}: {why}")
        elif not same(_tensor(a), _tensor(right[name])):
            moved.append(name)
    if not moved:
        return wrong
    reference = _leaves(in_float64())
    sides = ({name: _tensor(side[name]) for name in moved} for side in (reference, left, right))
    for found in compare_all(*sides):
        if not found.passed:
            wrong.append(str(found))
        elif _is_half(left[found.name]) and found.error > AS_EAGER.multiple * found.eager_error:
            wrong.append(f"{found}, by the floor alone, which forgives a half as much as 6%")
    return wrong


def _is_half(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)


def _leaves(shown: dict[str, Any]) -> dict[str, Any]:
    """What stands in the containers of each name, by its path."""
    found = pytree.tree_flatten_with_path(shown)[0]
    return {pytree.keystr(path): leaf for path, leaf in found}


def _tensor(value: Any) -> torch.Tensor:
    """A number that was read from a tensor as that tensor; anything else is no float, and equal to eager's."""
    if isinstance(value, torch.Tensor):
        return value.detach().resolve_neg().resolve_conj()
    return torch.tensor(value if isinstance(value, float) else 0.0, dtype=torch.float32)


def _difference(a: Any, b: Any, strides: bool) -> str:
    """Of all but the values of floats."""
    if type(a) is not type(b):
        return f"{b!r} ({type(b).__name__}) instead of {a!r} ({type(a).__name__})"
    if not isinstance(a, torch.Tensor):
        return "" if isinstance(a, float) or a == b else f"{b!r} instead of {a!r}"
    for what in ("dtype", "shape", "requires_grad", "is_leaf"):
        if getattr(a, what) != getattr(b, what):
            return f"{what} {getattr(b, what)} instead of {getattr(a, what)}"
    if a.numel() == 0:
        return ""
    # FakeTensors do not know what eager makes of the strides of dims of size one.
    if strides and any(s != t for s, t, size in zip(a.stride(), b.stride(), a.shape, strict=True) if size > 1):
        return f"strides {b.stride()} instead of {a.stride()}"
    return ""


class Programs:
    """The programs of a test file: as a decorator it adds one, and `test_as_eager = program.test()` runs each."""

    def __init__(self) -> None:
        self._found: list[Program] = []

    def __call__(self, function: Program) -> Program:
        self._found.append(function)
        return function

    def test(self) -> Callable[[Program], None]:
        """The test of what the file adds, before this call or after it."""

        @pytest.mark.parametrize("function", self._found, ids=lambda f: f.__name__)
        def test_as_eager(function: Program) -> None:
            agree(function, fallbacks=FALLBACKS.get(function.__name__, ()))

        return test_as_eager
