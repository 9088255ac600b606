"""One program run twice, in eager and compiled by the bridge, and everything compared that a user can see."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.kinds import ReasonKind
from relaxgrad.bridge.schemas import GraphRecord
from tests.bridge.expected_fallbacks import FALLBACKS

Compile = Callable[..., Any]

#: A user's whole flow: gets what compiles a module or function, returns what the user sees, by name.
Program = Callable[[Compile], dict[str, Any]]

#: Reasons that are bugs of the bridge, not limits of it.
BUGS = frozenset({ReasonKind.COMPILE, ReasonKind.TYPE_CHECK})


@dataclass(frozen=True)
class Tolerance:
    """Of floats, as torch.allclose takes it. Everything else is compared exactly."""

    rtol: float = 2e-5
    atol: float = 5e-6


def agree(
    program: Program,
    *,
    tolerance: Tolerance = Tolerance(),  # frozen
    fallbacks: Collection[str] = (),
    strides: bool = True,
    seed: int = 0,
    **options: Any,
) -> list[GraphRecord]:
    """Runs `program` in eager and compiled and fails unless what it returns is the same; returns the compiled graphs.

    Compared of a tensor: dtype, shape, strides, requires_grad, values. The ops in `fallbacks`, and no others, must fall
    back to ATen.
    A graph that failed to compile fails the test whatever the values, and so does a program of which nothing was
    compiled.
    """
    torch.manual_seed(seed)
    expected = program(lambda function: function)
    torch.compiler.reset()
    torch.manual_seed(seed)
    with record_graphs() as records:
        found = program(lambda function: torch.compile(function, backend=relaxgrad, **options))
    assert expected.keys() == found.keys()
    assert expected, "the program shows nothing"
    wrong = [line for name in expected for line in _differences(name, expected[name], found[name], tolerance, strides)]
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


def _differences(name: str, a: Any, b: Any, tolerance: Tolerance, strides: bool) -> Iterator[str]:
    left, left_spec = pytree.tree_flatten(a)
    right, right_spec = pytree.tree_flatten(b)
    if left_spec != right_spec:
        yield f"{name}: {right_spec} instead of {left_spec}"
        return
    for position, (x, y) in enumerate(zip(left, right, strict=True)):
        if why := _difference(x, y, tolerance, strides):
            yield f"{name}[{position}]: {why}"


def _difference(a: Any, b: Any, tolerance: Tolerance, strides: bool) -> str:
    if type(a) is not type(b):
        return f"{b!r} ({type(b).__name__}) instead of {a!r} ({type(a).__name__})"
    if not isinstance(a, torch.Tensor):
        same = (
            a == b or (isinstance(a, float) and abs(a - b) <= tolerance.atol + tolerance.rtol * abs(a)) or a != a != b
        )
        return "" if same else f"{b!r} instead of {a!r}"
    for what in ("dtype", "shape", "requires_grad", "is_leaf"):
        if getattr(a, what) != getattr(b, what):
            return f"{what} {getattr(b, what)} instead of {getattr(a, what)}"
    if a.numel() == 0:
        return ""
    # FakeTensors do not know what eager makes of the strides of dims of size one.
    if strides and any(s != t for s, t, size in zip(a.stride(), b.stride(), a.shape, strict=True) if size > 1):
        return f"strides {b.stride()} instead of {a.stride()}"
    exact = not (a.is_floating_point() or a.is_complex())
    x, y = a.detach(), b.detach()
    if torch.equal(x, y) if exact else torch.allclose(y, x, tolerance.rtol, tolerance.atol, equal_nan=True):
        return ""
    right = torch.isclose(y, x, tolerance.rtol, tolerance.atol, equal_nan=True) if not exact else x == y
    where = (~right).nonzero()[:8].tolist()
    return f"{y[~right][:8].tolist()} instead of {x[~right][:8].tolist()} at {where}"


class Programs:
    """The programs of a test file: as a decorator it adds one, and `test_as_eager = program.test()` runs each."""

    def __init__(self, tolerance: Tolerance = Tolerance()):  # frozen
        self._found: list[Program] = []
        self._tolerance = tolerance

    def __call__(self, function: Program) -> Program:
        self._found.append(function)
        return function

    def test(self) -> Callable[[Program], None]:
        """The test of what the file adds, before this call or after it."""

        @pytest.mark.parametrize("function", self._found, ids=lambda f: f.__name__)
        def test_as_eager(function: Program) -> None:
            agree(function, fallbacks=FALLBACKS.get(function.__name__, ()), tolerance=self._tolerance)

        return test_as_eager
