# SPDX-License-Identifier: Apache-2.0
"""One call of an operator, validated: forward and backward through the backend, beside eager and a float64 reference.

Note [How a call is validated]
The call runs four times on copies of the same inputs, with the same seed and the same tangents: in eager; in eager
with another seed (values that then differ are random: see below); in float64 (numbers.float64_run); and compiled.
Every tensor that comes out, every gradient and every input that was written to is validated by numbers.compare_all.

- Random values have no reference but eager's at the same seed, unless the float64 run drew the same numbers (it then
  lies close to eager). A reference that the float64 run cannot give is eager's own values, and the record says so.
- A float64 call has no wider type to be held to. Its reference is eager, and the size of eager's own rounding error
  is taken from a float32 run of the same call, scaled by the ratio of the two epsilons; an error within a few units in
  the last place of the call's largest value always passes.
- A comparison of nothing (no elements, zeros with zeros) proves shape, dtype and strides, not values. A call that has
  no other comparison is `vacuous`: it does not fail, and is never counted as verified. Of an op that leaves its memory
  unset (`torch.empty`) shape, dtype and strides are all that it promises: they verify it.
- Strides of outputs are compared too, where a dim has more than one element. Some of PyTorch's own decompositions
  return another layout than the op that they stand for; a graph run by PyTorch itself tells, and the record says so.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from relaxgrad.bridge import pytree, torch_api
from relaxgrad.bridge.schemas import GraphRecord

from ..harness import numbers
from ..harness.models import describe
from ..harness.numbers import Comparison, Verdict
from .call import SEED, Call, Compiled, Run, run_by_torch, run_call
from .values import grown

OTHER_SEED = 21


class Status(StrEnum):
    """What became of one call."""

    PASS = "pass"
    VACUOUS = "vacuous"  # nothing to compare by value; shape, dtype and strides agree
    LESS_ACCURATE = "less accurate than eager"  # right by the wider grade of numbers.py
    WRONG = "wrong"
    ERROR = "error"  # the backend raised where eager runs
    CRASH = "crash"  # the worker process died
    TIMEOUT = "timeout"
    EAGER = "eager"  # eager itself cannot run it


#: What counts as passed: a vacuous call agrees in all that it has.
GOOD = frozenset({Status.PASS, Status.VACUOUS})


@dataclass
class Checked:
    """The finding on one call. `outputs` has a Verification for each output and gradient by name."""

    status: Status
    detail: str = ""
    error: float = 0.0  # the largest of the wrong values, relative to the largest reference value
    outputs: dict[str, str] = field(default_factory=dict)
    reference: str = "float64"
    by_torch: bool = False  # of a failure: PyTorch's own kernels fail in the same graph too, so it lies in the graph
    layout: str = ""  # where strides differ from eager's and should
    backward: bool = False  # whether a gradient was validated
    capture: str = "whole"  # "breaks": Dynamo needed graph breaks
    graphs: int = 0
    calls: dict[str, int] = field(default_factory=dict)  # nodes by kind
    ops: dict[str, dict[str, int]] = field(default_factory=dict)  # overload -> nodes by kind
    reasons: list[str] = field(default_factory=list)  # of fallback nodes, as "op: kind: detail"
    symbolic: bool | None = None  # whether a graph with symbolic sizes ran; None where it was not asked for
    sizes: int = 1  # sizes of inputs that one compiled function was run with

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if value not in ([], {}, "", None, False, 0.0)}


def check_call(call: Call, dynamic: bool = False, backend: Any = None) -> Checked:
    """Validates one call; see Note [How a call is validated]. Raises nothing for what the call or the backend does.

    `dynamic`: every size is symbolic, and a second size goes through the same compiled function where eager takes one.
    `backend` is for tests: a torch.compile backend in place of the bridge's.
    """
    with warnings.catch_warnings(), torch_api.quiet():
        warnings.simplefilter("ignore")
        try:
            return _check(call, dynamic, backend)
        finally:
            torch.compiler.reset()


def _check(call: Call, dynamic: bool, backend: Any) -> Checked:
    tangents: dict[str, Tensor] = {}
    try:
        eager = run_call(call, call.function, tangents, SEED)
    except Exception as error:
        return Checked(Status.EAGER, describe(error))
    backward_error = eager.backward_error
    if backward_error:  # eager cannot go back: the call is validated as inference
        call = _without_gradients(call)
        eager = run_call(call, call.function, tangents, SEED)
    calls = [(call, tangents, eager)]
    if dynamic:
        second = _second_size(call)
        if second is not None:
            calls.append(second)
    compiled = Compiled(call.function, dynamic, backend)
    checked = Checked(Status.PASS, sizes=len(calls))
    found: list[Comparison] = []
    try:
        for number, (one, its_tangents, its_eager) in enumerate(calls):
            result = compiled.run(one, its_tangents)
            prefix = "" if number == 0 else "second size: "
            found += _validate(one, its_tangents, its_eager, result, checked, prefix)
    except Exception as error:
        checked.status, checked.detail = Status.ERROR, _one_line(torch_api.root_cause(error))
    _note_graphs(checked, compiled.graphs, dynamic)
    checked.capture = compiled.capture
    checked.backward = bool(eager.gradients)
    if checked.status is not Status.ERROR:
        _decide(checked, found, call)
    if checked.status not in GOOD and _torch_fails_too(call, tangents, eager, dynamic):
        checked.by_torch = True
        checked.detail += " [PyTorch's own kernels in the same graph fail too]"
    if backward_error and not checked.detail:
        checked.detail = f"eager has no backward: {backward_error}"
    return checked


def _torch_fails_too(call: Call, tangents: dict[str, Tensor], eager: Run, dynamic: bool) -> bool:
    """Whether the call fails as well where AOTAutograd's graph, with our decompositions, runs in PyTorch's kernels."""
    by_torch = run_by_torch(call, tangents, dynamic)
    return by_torch is None or any(
        not c.passed and c.verdict is not Verdict.EMPTY
        for c in _validate(call, tangents, eager, by_torch, Checked(Status.PASS), "")
    )


def _without_gradients(call: Call) -> Call:
    detach = lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf  # noqa: E731
    args, kwargs = pytree.tree_map(detach, (call.args, call.kwargs))
    return replace(call, args=args, kwargs=kwargs, backward=False)


def _second_size(call: Call) -> tuple[Call, dict[str, Tensor], Run] | None:
    """The call with one size of its inputs grown by one and eager's values of it; None where eager refuses."""
    for args, kwargs in grown(call.args, call.kwargs):
        other = replace(call, args=args, kwargs=kwargs)
        tangents: dict[str, Tensor] = {}
        try:
            return other, tangents, run_call(other, call.function, tangents, SEED)
        except Exception:  # the size is bound by a number among the arguments, or by another tensor
            continue
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Validation

Values = Mapping[str, Tensor | None]


def _validate(
    call: Call, tangents: dict[str, Tensor], eager: Run, result: Run, checked: Checked, prefix: str
) -> list[Comparison]:
    wide, validated_as = _reference(call, tangents, eager)
    checked.reference = wide[0] if wide[0] != "float64" else checked.reference
    reference, yardstick = wide[1], validated_as
    found = []
    size = max(_size(eager.outputs), _size(eager.inputs), _size(tangents))
    written = _written(call, eager, result)
    pick: Callable[[Run], Values] = lambda run: {**run.outputs, **{n: run.inputs[n] for n in written}}  # noqa: E731
    for get in (pick, lambda run: run.gradients):
        eager_values, values = get(eager), get(result)
        found += _compare(get(reference), get(yardstick), eager_values, values, size)
    for name, value in eager.plain.items():
        same = name in result.plain and _same_plain(value, result.plain[name])
        detail = "" if same else f"{result.plain.get(name)!r} against {value!r}"
        found.append(Comparison(name, Verdict.PASS if same else Verdict.ERROR, detail=detail))
    found = [_settle_pick(call, tangents, eager, result, c) for c in found]
    differing = [name for name in eager.outputs if _strides_differ(eager, result, name)]
    if differing:
        by_torch = run_by_torch(call, tangents)
        differing = [n for n in differing if by_torch is None or _strides_differ(by_torch, result, n)]
        checked.layout = "strides as PyTorch's decomposition gives them" if not differing else ""
    for position, comparison in enumerate(found):
        if comparison.passed and comparison.name in differing:
            seen, expected = result.outputs[comparison.name], eager.outputs[comparison.name]
            assert seen is not None
            assert expected is not None
            detail = f"strides {seen.stride()} against {expected.stride()}"
            found[position] = Comparison(comparison.name, Verdict.SHAPE, detail=detail)
    if prefix:
        found = [Comparison(**{**vars(c), "name": prefix + c.name}) for c in found]
    return found


def _settle_pick(
    call: Call, tangents: dict[str, Tensor], eager: Run, result: Run, comparison: Comparison
) -> Comparison:
    """Indices that differ from eager's are right where each points at the very value that was returned beside it, and
    the gradient is then right where it has the tangents at those indices and zeros elsewhere."""
    if not call.picks or comparison.passed or comparison.name not in ("out[1]", *eager.gradients):
        return comparison
    picked = _picked(eager, result)
    if picked is None:
        return comparison
    dim, indices, source = picked
    told = replace(comparison, verdict=Verdict.PASS, error=0.0, detail="picks other ones of equal values")
    if comparison.name == "out[1]":
        return told
    tangent, gradient = tangents.get("out[0]"), result.gradients.get(comparison.name)
    if tangent is None or gradient is None or gradient.shape != source.shape:
        return comparison
    expected = torch.zeros_like(source)
    expected.scatter_(dim, indices, tangent if tangent.dim() == source.dim() else tangent.unsqueeze(dim))
    return told if _same(expected, gradient) else comparison


def _picked(eager: Run, result: Run) -> tuple[int, Tensor, Tensor] | None:
    """(dim, indices, source) of a pick of values equal to eager's; None where it is no such pick."""
    values, indices = result.outputs.get("out[0]"), result.outputs.get("out[1]")
    source = next(iter(eager.inputs.values()), None)
    if values is None or indices is None or source is None or not _same(values, eager.outputs["out[0]"]):
        return None
    for dim in range(source.dim()):
        picked, returned = indices, values
        if indices.dim() < source.dim():
            picked, returned = indices.unsqueeze(dim), values.unsqueeze(dim)
        others = [n for d, n in enumerate(source.shape) if d != dim]
        if picked.dim() != source.dim() or [n for d, n in enumerate(picked.shape) if d != dim] != others:
            continue
        in_range = bool(((picked >= 0) & (picked < source.shape[dim])).all())
        distinct = bool((picked.sort(dim).values.diff(dim=dim) != 0).all())
        if in_range and distinct and _same(source.gather(dim, picked), returned):
            return dim, picked, source
    return None


def _reference(call: Call, tangents: dict[str, Tensor], eager: Run) -> tuple[tuple[str, Run], Run]:
    """(name of the reference, its values) and the values that say how large eager's own error is."""
    try:
        other = run_call(call, call.function, dict(tangents), OTHER_SEED)
        is_random = not call.unset and any(not _same(t, other.outputs.get(n)) for n, t in eager.outputs.items())
    except Exception:
        is_random = True
    try:
        if _has_dtype(eager, torch.float64):
            narrow = run_call(call, call.function, dict(tangents), SEED, torch.float32)
            if is_random and not _close(eager, narrow):
                return ("eager", eager), eager
            return ("float32 error", eager), narrow
        with numbers.float64_run():
            reference = run_call(call, call.function, dict(tangents), SEED, torch.float64)
    except Exception:  # an op without float64, or one that checks dtypes against each other
        try:
            reference = run_call(call, call.function, dict(tangents), SEED, torch.float64)
        except Exception:
            return ("eager", eager), eager
    if is_random and not _close(eager, reference):
        return ("eager", eager), eager
    return ("float64", reference), eager


def _compare(reference: Values, yardstick: Values, eager: Values, result: Values, size: float) -> list[Comparison]:
    """numbers.compare_all, with the reference replaced by eager where the two disagree about what there is."""
    truth: dict[str, Tensor | None] = {}
    measure: dict[str, Tensor | None] = {}
    values: dict[str, Tensor | None] = {}
    wrong_layout: list[Comparison] = []
    for name, tensor in eager.items():
        given = result.get(name)
        if tensor is not None and given is not None and tensor.layout is not given.layout:
            detail = f"{given.layout} against {tensor.layout}"
            wrong_layout.append(Comparison(name, Verdict.SHAPE, detail=detail))
            continue
        own, wide, narrow = _dense(tensor), _dense(reference.get(name)), _dense(yardstick.get(name))
        if wide is None or own is None or wide.shape != own.shape or wide.is_complex() != own.is_complex():
            wide = own
        truth[name], values[name] = wide, _dense(given)
        measure[name] = own
        if own is not None and own.dtype is torch.float64 and narrow is not None and narrow.shape == own.shape:
            measure[name] = _scaled_error(own, narrow)
    found = numbers.compare_all(truth, measure, values)
    size = max(size, _size(eager))
    return wrong_layout + [
        _zero_as_it_should_be(c, truth.get(c.name), measure.get(c.name), values.get(c.name), size) for c in found
    ]


def _size(values: Values) -> float:
    """The largest finite value of a set of tensors."""
    dense = [t for t in map(_dense, values.values()) if t is not None and t.is_floating_point() and t.numel()]
    return max((float(t.double().abs().nan_to_num(0, 0, 0).max()) for t in dense), default=0.0)


def _zero_as_it_should_be(
    found: Comparison, reference: Tensor | None, eager: Tensor | None, result: Tensor | None, size: float
) -> Comparison:
    """A result that differs from zero only by rounding, or is zero where eager does: no fault, and no proof either.

    The float64 rule measures in units of the reference. Where terms cancel to zero, the unit is the size of the terms:
    `size`, the largest value of the call.
    """
    if found.verdict not in (Verdict.ALL_ZERO, Verdict.LESS_ACCURATE, Verdict.ERROR):
        return found
    if reference is None or eager is None or result is None:
        return found
    if not (reference.is_floating_point() and eager.is_floating_point()):
        return found
    exact, error = reference.double().abs().max(), (eager.double() - reference.double()).abs().max()
    floor = numbers.AS_EAGER.floor_eps * torch.finfo(eager.dtype).eps * size
    if eager.dtype is torch.float64 and bool((result - reference).abs().max() <= floor):
        # eager's error is an estimate there (see the Note), too small where its float32 run was lucky
        return replace(found, verdict=Verdict.PASS)
    noise = bool(error >= exact) if found.verdict is Verdict.ALL_ZERO else bool(exact <= floor)
    if noise and bool(result.double().abs().max() <= floor):
        return Comparison(found.name, Verdict.EMPTY, detail="zero up to rounding")
    return found


def _scaled_error(exact: Tensor, narrow: Tensor) -> Tensor:
    """`exact` (float64) with the error of a float32 run added, scaled to float64's epsilon."""
    ratio = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps
    error = (narrow.double() - exact) * ratio
    return exact + torch.where(torch.isfinite(error), error, 0.0)


def _dense(tensor: Tensor | None) -> Tensor | None:
    if tensor is None:
        return None
    tensor = tensor.detach()
    if tensor.is_nested:
        return torch.cat([t.reshape(-1) for t in tensor.unbind()])
    return tensor.to_dense() if tensor.layout is not torch.strided else tensor


def _has_dtype(run: Run, dtype: torch.dtype) -> bool:
    return any(t is not None and t.dtype is dtype for t in (*run.outputs.values(), *run.inputs.values()))


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    a, b = _dense(a), _dense(b)
    if a is None or b is None:
        return a is b
    if a.shape != b.shape or a.dtype is not b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _close(eager: Run, reference: Run) -> bool:
    """Whether two runs drew the same random numbers, told by their values."""
    for name, tensor in eager.outputs.items():
        a, b = _dense(tensor), _dense(reference.outputs.get(name))
        if a is None or b is None or a.shape != b.shape:
            return False
        if not torch.allclose(a.to(torch.complex128), b.to(torch.complex128), 1e-2, 1e-2, equal_nan=True):
            return False
    return True


def _same_plain(a: Any, b: Any) -> bool:
    return bool(a == b) or (a != a and b != b)


def _written(call: Call, eager: Run, result: Run) -> list[str]:
    """Inputs that either run wrote to."""
    before = {f"input{p}": t for p, t in pytree.tree_paths((call.args, call.kwargs)) if isinstance(t, Tensor)}
    return [
        name for name, t in before.items() if not (_same(t, eager.inputs[name]) and _same(t, result.inputs.get(name)))
    ]


def _strides_differ(eager: Run, result: Run, name: str) -> bool:
    a, b = eager.outputs.get(name), result.outputs.get(name)
    if a is None or b is None or a.shape != b.shape or a.layout is not torch.strided or b.layout is not a.layout:
        return False
    if a.is_nested or not a.numel():
        return False
    pairs = zip(a.shape, a.stride(), b.stride(), strict=True)
    return any(size > 1 and x != y for size, x, y in pairs)


def _decide(checked: Checked, found: list[Comparison], call: Call) -> None:
    proved = 0
    for comparison in found:
        promised = call.unset and comparison.verdict in _BY_VALUE  # it has the shape, dtype and strides
        empty = comparison.verdict is Verdict.EMPTY and not promised
        empty = empty and not (call.zeros and comparison.detail == ZEROS_IN_BOTH)
        if empty or "eager has none" in comparison.detail:
            checked.outputs[comparison.name] = "untested"
        elif comparison.passed or promised or comparison.verdict is Verdict.EMPTY:
            checked.outputs[comparison.name] = "verified"
            proved += 1
        elif comparison.right:
            checked.outputs[comparison.name] = "verified"
            proved += 1
            if checked.status is Status.PASS:
                checked.status, checked.error, checked.detail = Status.LESS_ACCURATE, comparison.error, str(comparison)
        else:
            if checked.status is Status.LESS_ACCURATE:
                checked.detail = ""
            checked.outputs[comparison.name] = "wrong"
            checked.status = Status.WRONG
            checked.error = max(checked.error, comparison.error)
            checked.detail = checked.detail or str(comparison)
    if checked.status is Status.PASS and not proved:
        checked.status = Status.VACUOUS
        checked.detail = "; ".join(sorted({c.detail or str(c.verdict) for c in found})) or "no output is a tensor"


ZEROS_IN_BOTH = "zeros in eager as well"  # as numbers.compare says it
_BY_VALUE = (
    Verdict.PASS, Verdict.LESS_ACCURATE, Verdict.ERROR, Verdict.ALL_ZERO, Verdict.NON_FINITE, Verdict.EMPTY,
)  # fmt: skip


def _note_graphs(checked: Checked, graphs: list[GraphRecord], dynamic: bool) -> None:
    checked.graphs = len(graphs)
    calls: Counter[str] = Counter()
    ops: dict[str, Counter[str]] = {}
    for graph in graphs:
        calls.update({kind.value: count for kind, count in graph.calls.items()})
        for op, kinds in graph.ops.items():
            ops.setdefault(op, Counter()).update({kind.value: count for kind, count in kinds.items()})
    checked.calls = dict(calls)
    checked.ops = {op: dict(kinds) for op, kinds in ops.items()}
    reasons = {f"{r.op}: {r.kind}" + (f": {r.detail[:120]}" if r.detail else "") for g in graphs for r in g.reasons}
    checked.reasons = sorted(reasons)
    checked.symbolic = any(g.symbolic for g in graphs) if dynamic else None


def _one_line(error: BaseException) -> str:
    text = describe(error) if isinstance(error, Exception) else str(error)
    return " ".join(text.split())[:400]
