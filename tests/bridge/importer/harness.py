# SPDX-License-Identifier: Apache-2.0
"""Runs a function through the backend and holds it against eager: every output and gradient, and how each op ran."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.device import host
from relaxgrad.bridge.importer.registry import implementations, overload
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.schemas import GraphKind, GraphRecord
from relaxgrad.coverage.harness.numbers import compare_all, float64_run
from relaxgrad.coverage.harness.problem import tensors_in

NATIVE = frozenset({Kind.NATIVE})


def run_test(
    function: Callable[..., Any],
    *inputs: Any,
    then: Sequence[Sequence[Any]] = (),
    dynamic: bool | None = None,
    grad: bool = True,
    kinds: Collection[str] = NATIVE,
    ops: Collection[str] = (),
) -> list[GraphRecord]:
    """Compiles `function`, runs it on `inputs` and on each of `then`, and compares all results with eager's.

    Gradients (`grad`) are taken of every floating-point input, with fixed random tangents for each output that has
    one. A float is validated by the float64 rule, anything else must be equal; an output without elements or of zeros
    only fails, for it would check nothing.
    Every op must run as one of `kinds` (views and sizes are always allowed), at least one
    of each of `kinds`, and each name in `ops` (as `aten.sort.default`) must have been among them. `dynamic=True` makes
    the first compilation symbolic. Returns the records of the graphs.
    """
    with record_graphs() as records:
        compiled = torch.compile(function, backend=relaxgrad, dynamic=dynamic, fullgraph=True)
        for given in (inputs, *then):
            eager = _run(function, given, grad)
            with float64_run():
                reference = _run(function, [_double(v) for v in given], grad)
            result = _run(compiled, given, grad)
            assert eager, "the function returned no tensor"
            failed = [c for c in compare_all(reference, eager, result) if not c.passed]
            assert not failed, "\n".join(map(str, failed))
    _check_records(records, any("gradient" in name for name in eager), frozenset(kinds), ops, dynamic)
    return records


def _check_records(
    records: list[GraphRecord], backward: bool, kinds: frozenset[str], ops: Collection[str], dynamic: bool | None
) -> None:
    ran = [r for r in records if r.runs]
    assert ran, "no graph was compiled, or none ran"
    if backward:
        assert {r.kind for r in ran} >= {GraphKind.FORWARD, GraphKind.BACKWARD}
    found = {kind for r in records for kind, calls in r.calls.items() if calls} - {Kind.METADATA}
    reasons = "\n".join(str(reason) for r in records for reason in r.reasons)
    seen = {op for r in records for op in r.ops}
    if any(map(_is_left_to_aten, seen)):  # on this device, so that the test's kinds are not all there
        assert found <= kinds | {Kind.LIBRARY}, f"ran as {sorted(found)}: {reasons}"
    else:
        assert found == kinds, f"ran as {sorted(found)}: {reasons}"
    assert seen >= set(ops), f"{sorted(set(ops) - seen)} are not among {sorted(seen)}"
    if dynamic:
        assert all(r.symbolic for r in records)


def _is_left_to_aten(name: str) -> bool:
    """Whether the device under test calls ATen for an op that others have a kernel for."""
    op = overload(name) if name.count(".") == 2 else None
    first = next(iter(implementations(op, host())), None) if op is not None else None
    return first is not None and first.device is not None and first.kind is Kind.LIBRARY


def _run(function: Callable[..., Any], inputs: Sequence[Any], grad: bool) -> dict[str, Tensor | None]:
    """Outputs by number and gradients by input number, detached."""
    leaves = [_leaf(v, grad) if isinstance(v, Tensor) else v for v in inputs]
    outputs = tensors_in(function(*leaves))
    results: dict[str, Tensor | None] = {f"output {i}": t.detach().clone() for i, t in enumerate(outputs)}
    wanted = {i: v for i, v in enumerate(leaves) if isinstance(v, Tensor) and v.requires_grad}
    roots = [t for t in outputs if t.requires_grad]
    if wanted and roots:
        tangents = [_tangent(t, number) for number, t in enumerate(roots)]
        gradients = torch.autograd.grad(roots, list(wanted.values()), tangents, allow_unused=True)
        results |= {f"gradient of input {i}": g for i, g in zip(wanted, gradients, strict=True)}
    return results


def _leaf(value: Tensor, grad: bool) -> Tensor:
    fresh = value.detach().clone()
    return fresh.requires_grad_(grad and value.is_floating_point())


def _tangent(output: Tensor, number: int) -> Tensor:
    """The same numbers in every dtype: drawn in float32, rounded to float16 so that no backend rounds them again."""
    generator = torch.Generator().manual_seed(number)
    drawn = torch.empty(output.shape, dtype=torch.float32).uniform_(0.5, 1.5, generator=generator)
    return ((drawn * 64).round() / 64).to(output.dtype)


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
