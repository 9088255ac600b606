# SPDX-License-Identifier: Apache-2.0
"""The one tolerance module: two grades by the distance to float64, and the float64 run that they need.

Note [The float64 rule]
Float32 eager is not the truth: it is off by its own rounding, and how far depends on the model. So the reference is the
same computation in float64, and a result is validated by the distance to it in units of eager's own distance:

    max|result - reference|  <=  max(multiple * max|eager - reference|, floor_eps * eps * max|reference|)

There are two grades of it, fixed before they were tried (docs/numbers.md has what they catch and what they let pass):

- *right* (RIGHT: 8 times eager's error, 64 eps) decides what trains and what is timed, for every backend alike. A
  result beyond it is wrong, unless eager's own reorderings go as far (conditioning.py).
- *as accurate as eager* (AS_EAGER: 4 times, 8 eps) is the gate of our own tests, and a column elsewhere. A result
  between the two is right and less accurate than eager: the order of a sum, a fused product, a blocked convolution.

What both share:

- The largest error, not a mean: one wrong element (an index off by one, a mask that differs in one place) must not
  drown among many right ones.
- The floor is for results that eager happens to get exactly (a sum of few terms): fusing a multiply and an add moves
  the last place, and is no fault.
- Where eager's own error is of the size of the reference itself, the exact value is zero up to rounding (the bias of a
  convolution before a batch norm, of a key projection before a softmax) and both results are noise. Its size
  follows the terms that cancel, not their sum, so there the floor is taken from `magnitude`, the largest reference
  value of the whole set that the tensor belongs to (all gradients of the step). It never applies to a tensor that
  eager gets to better than NOISE.
- NaN and infinity must stand where eager has them. A comparison of nothing (no elements, all NaN, zeros with zeros) is
  a failure, because it would pass whatever was compiled. So is a tensor against None.
- Integer and bool tensors have no rounding: they must equal eager's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from relaxgrad.bridge.torch_api import TorchDispatchMode

from .problem import Problem, copy_tensors, map_tensors, seed_everything


@dataclass(frozen=True)
class Grade:
    """How far a result may be from float64; see Note [The float64 rule]."""

    multiple: float  # of eager's own largest error
    floor_eps: float  # units of eps(dtype) * max|reference|

    def allowed(self, eager_error: float, ulp: float) -> float:
        """The largest error of this grade. `ulp`: eps(dtype) times the size that the floor is taken from."""
        return max(self.multiple * eager_error, self.floor_eps * ulp)


RIGHT = Grade(8.0, 64.0)
AS_EAGER = Grade(4.0, 8.0)
NOISE = 0.1  # eager error relative to max|reference| from which the reference counts as zero up to rounding

#: Relative difference from eager's loss at sizes other than the traced ones, where no float64 run is taken.
LOSS_TOLERANCE = 1e-3


class Verdict(StrEnum):
    """What a comparison found."""

    PASS = "pass"  # as accurate as eager
    LESS_ACCURATE = "less accurate than eager"  # right, and not as accurate as eager
    MISSING = "missing"  # None where eager has a tensor
    UNEXPECTED = "unexpected"  # a tensor where eager has None
    SHAPE = "shape"
    DTYPE = "dtype"
    ALL_ZERO = "all zero"
    EMPTY = "nothing to compare"  # no elements, nothing finite, or zeros in the reference as well
    NON_FINITE = "NaN or infinity"  # not where eager has it
    ERROR = "error too large"  # not right
    ZERO = "zero where eager has none"  # a gradient that is exactly zero and that eager does not make


@dataclass(frozen=True)
class Comparison:
    """One tensor, validated by Note [The float64 rule]. Errors are relative to max|reference|; of noise, to
    `magnitude`.
    """

    name: str
    verdict: Verdict
    error: float = 0.0  # of the result
    eager_error: float = 0.0
    allowed: float = 0.0  # of what is as accurate as eager
    allowed_right: float = 0.0  # of what is right
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether the result is as accurate as eager: the gate of our own tests."""
        return self.verdict is Verdict.PASS

    @property
    def right(self) -> bool:
        """Whether the result is right: what decides that a model trains, or that a step is timed."""
        return self.verdict in (Verdict.PASS, Verdict.LESS_ACCURATE)

    @property
    def ratio(self) -> float:
        """The error in units of what is as accurate as eager: at most 1 for a pass."""
        if self.allowed > 0:
            return self.error / self.allowed
        return 0.0 if self.error == 0 else float("inf")

    @property
    def times_eager(self) -> float:
        """The error in units of eager's, which counts as at least the floor's share: at most 4 for a pass."""
        return self.ratio * AS_EAGER.multiple

    def __str__(self) -> str:
        if self.allowed > 0 and not self.detail:
            text = f"error {self.error:.1e}, eager's {self.eager_error:.1e}, right up to {self.allowed_right:.1e}"
            if not self.passed:
                text = f"{self.times_eager:.1f}x: {text}"
        else:
            text = self.detail
        return f"{self.name}: {self.verdict}" + (f" ({text})" if text else "")

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def compare(
    name: str, reference: Tensor | None, eager: Tensor | None, result: Tensor | None, magnitude: float = 0.0
) -> Comparison:
    """Validates `result` (any shape) by Note [The float64 rule]; `eager` sets shape, dtype and the unit of the error.

    `magnitude`: the largest value of the set of references that this one belongs to. Two Nones pass: an unused
    parameter has no gradient in eager either.
    """
    if eager is None or reference is None:
        if (eager is None) != (reference is None):
            raise ValueError(f"{name}: eager and its float64 reference disagree on whether there is a tensor")
        if result is None:
            return Comparison(name, Verdict.PASS, detail="eager has none")
        return _unexpected(name, result)
    if result is None:
        return Comparison(name, Verdict.MISSING, detail="eager has a tensor")
    if reference.shape != eager.shape:
        raise ValueError(f"{name}: reference {tuple(reference.shape)} against eager {tuple(eager.shape)}")
    if result.shape != eager.shape:
        return Comparison(name, Verdict.SHAPE, detail=f"{tuple(result.shape)} against {tuple(eager.shape)}")
    if result.dtype != eager.dtype:
        return Comparison(name, Verdict.DTYPE, detail=f"{result.dtype} against {eager.dtype}")
    if not eager.numel():
        return Comparison(name, Verdict.EMPTY, detail="no elements")
    reference, eager, result = reference.detach(), eager.detach(), result.detach()
    if eager.is_complex():
        reference, eager, result = (torch.view_as_real(t.resolve_conj()) for t in (reference, eager, result))
    if not eager.is_floating_point():
        return _compare_exact(name, eager, result)
    return _compare_floats(name, reference, eager, result, magnitude)


def _compare_exact(name: str, eager: Tensor, result: Tensor) -> Comparison:
    wrong = int((eager != result).sum())
    if wrong:
        return Comparison(name, Verdict.ERROR, error=float("inf"), detail=f"{wrong} of {eager.numel()} differ")
    return Comparison(name, Verdict.PASS)


def _compare_floats(name: str, reference: Tensor, eager: Tensor, result: Tensor, magnitude: float) -> Comparison:
    eps = torch.finfo(result.dtype).eps
    reference, eager, result = reference.double(), eager.double(), result.double()
    finite = torch.isfinite(eager)
    same_special = torch.where(finite, torch.isfinite(result), (result == eager) | (result.isnan() & eager.isnan()))
    if not bool(same_special.all()):
        wrong = int((~same_special).sum())
        return Comparison(name, Verdict.NON_FINITE, error=float("inf"), detail=f"{wrong} elements not as in eager")
    finite &= torch.isfinite(reference)
    if not bool(finite.any()):
        return Comparison(name, Verdict.EMPTY, detail="nothing finite")
    reference, eager, result = reference[finite], eager[finite], result[finite]
    scale = float(reference.abs().max())
    if not bool(result.any()):
        if scale == 0 or not bool(eager.any()):
            return Comparison(name, Verdict.EMPTY, detail="zeros in eager as well")
        return Comparison(name, Verdict.ALL_ZERO, error=1.0, detail="eager has values")
    error, eager_error = float((result - reference).abs().max()), float((eager - reference).abs().max())
    size = max(scale, magnitude) if eager_error >= NOISE * scale else scale
    as_eager, right = (grade.allowed(eager_error, eps * size) for grade in (AS_EAGER, RIGHT))
    verdict = Verdict.PASS if error <= as_eager else Verdict.LESS_ACCURATE if error <= right else Verdict.ERROR
    unit = size or max(eager_error, error)
    return Comparison(name, verdict, error / unit, eager_error / unit, as_eager / unit, right / unit)


def _unexpected(name: str, result: Tensor) -> Comparison:
    """A tensor where eager has None."""
    zero = not bool(result.any())
    return Comparison(name, Verdict.ZERO if zero else Verdict.UNEXPECTED, detail="eager has none")


def compare_all(
    reference: Mapping[str, Tensor | None], eager: Mapping[str, Tensor | None], result: Mapping[str, Tensor | None]
) -> list[Comparison]:
    """Validates a set of named tensors; a name that eager has and `result` lacks is missing. Order of `eager`."""
    floats = [t for t in reference.values() if t is not None and t.is_floating_point() and t.numel()]
    sizes = [float(t.detach().double().abs().nan_to_num(0, 0, 0).max()) for t in floats]
    magnitude = max(sizes, default=0.0)
    found = [compare(n, reference.get(n), t, result.get(n), magnitude) for n, t in eager.items()]
    found += [_unexpected(n, t) for n, t in result.items() if n not in eager and t is not None]
    return found


def worst(comparisons: list[Comparison]) -> Comparison | None:
    """The comparison furthest from passing: what is not right first, then the largest share of what is allowed."""
    return max(comparisons, key=lambda c: (not c.right, c.ratio), default=None)


def curve_difference(reference: list[float], result: list[float]) -> float:
    """The largest relative difference of two loss curves; infinity where lengths differ, one is empty or not finite."""
    if len(reference) != len(result) or not reference:
        return float("inf")
    a, b = torch.tensor(reference, dtype=torch.float64), torch.tensor(result, dtype=torch.float64)
    difference = float(((a - b).abs() / a.abs().clamp_min(1e-12)).max())
    return difference if difference == difference else float("inf")


# ---------------------------------------------------------------------------------------------------------------------
# The float64 run

_REAL = {torch.float32: torch.float64, torch.complex64: torch.complex128}


class _Float64(TorchDispatchMode):
    """Keeps a float64 copy of a model in float64 with the random numbers of the float32 one.

    - A cast to float32, or a tensor made in float32 (RMS norms, softmaxes and rotary tables do both, to be exact in
      half precision), is made in float64: the reference would round to float32 otherwise.
    - A float32 tensor that comes from outside the copy is widened where it is used.
    - Uniform and normal numbers differ between float32 and float64 for one seed, so they are drawn in float32 and
      widened. Bernoulli draws (dropout) compare the same uniform number with p in every dtype; a test holds that.
    """

    _DRAWS = frozenset(
        {"rand", "randn", "rand_like", "randn_like", "normal", "uniform", "exponential", "normal_functional"}
        | {"uniform_", "normal_", "exponential_", "log_normal_", "cauchy_", "geometric_"}
    )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in _REAL:
            kwargs["dtype"] = _REAL[kwargs["dtype"]]
        name = func.overloadpacket.__name__
        if name not in self._DRAWS:
            if not func._schema.is_mutable:  # a float32 tensor from outside, as a target that the loss closes over
                args, kwargs = map_tensors(args, _widen), map_tensors(kwargs, _widen)
            return func(*args, **kwargs)
        if name.endswith("_"):
            target = args[0]
            if target.dtype != torch.float64:
                return func(*args, **kwargs)
            return target.copy_(func(target.float(), *args[1:], **kwargs))
        if "dtype" in func_arguments(func) and kwargs.get("dtype", torch.float64) in (None, torch.float64):
            kwargs["dtype"] = torch.float32
        elif "dtype" not in func_arguments(func):
            args, kwargs = map_tensors(args, _narrow), map_tensors(kwargs, _narrow)
        drawn = func(*args, **kwargs)
        return drawn.double() if drawn.dtype == torch.float32 else drawn


def func_arguments(func: Any) -> frozenset[str]:
    """The argument names of an OpOverload."""
    return frozenset(argument.name for argument in func._schema.arguments)


def _widen(tensor: Tensor) -> Tensor:
    return tensor.to(_REAL[tensor.dtype]) if tensor.dtype in _REAL else tensor


def _narrow(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype == torch.float64 else tensor


@contextlib.contextmanager
def float64_run() -> Iterator[None]:
    """While active, code written for float32 computes in float64 and draws the same random numbers as in float32."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Float64():
            yield
    finally:
        torch.set_default_dtype(default)


@dataclass(frozen=True)
class StepValues:
    """What one forward and backward left behind; all detached copies."""

    loss: Tensor  # 0-d
    gradients: dict[str, Tensor | None]  # by parameter name; None where there is none
    buffers: dict[str, Tensor]


def compare_steps(reference: StepValues, eager: StepValues, result: StepValues) -> list[tuple[str, Comparison]]:
    """(kind, comparison) of the loss, each gradient and each buffer of a step; each kind is a set of its own."""
    sides = (reference, eager, result)
    found = [("loss", c) for c in compare_all(*({"loss": side.loss} for side in sides))]
    found += [("gradients", c) for c in compare_all(*(side.gradients for side in sides))]
    return found + [("buffers", c) for c in compare_all(*(side.buffers for side in sides))]


def step_values(problem: Problem, loss: Tensor) -> StepValues:
    """Reads loss, gradients and buffers after a backward."""
    gradients = {n: None if p.grad is None else p.grad.detach().clone() for n, p in problem.named_parameters().items()}
    buffers = {n: b.detach().clone() for n, b in problem.module.named_buffers()}
    return StepValues(loss.detach().clone(), gradients, buffers)


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have one shape, one dtype and equal elements; NaN equals NaN."""
    return a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | ((a != a) & (b != b))).all())


def float64_step(problem: Problem, seed: int) -> StepValues:
    """One forward and backward of `problem` in float64 after `seed_everything(seed)`. `problem` itself is widened."""
    problem.module.double()
    args, kwargs = copy_tensors((problem.args, problem.kwargs), widen=True)
    problem.module.zero_grad()
    seed_everything(seed)
    with float64_run():
        loss = problem.loss(problem.module(*args, **kwargs))
        loss.backward()
    return step_values(problem, loss)
