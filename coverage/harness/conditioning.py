# SPDX-License-Identifier: Apache-2.0
"""Whether a problem is ill-conditioned: asked where a result is not right, before anything is called wrong.

Note [Ill-conditioned]
A ReLU whose argument is 1e-7, a tie of a max pool or a long chaotic loss curve turns the last place of a float32 number
into a visible difference, and eager moves as far when it sums in another order. So where a result is not right, two
questions are asked, and only if both are answered yes is the result *ill-conditioned at this seed* instead of wrong:

1. Does eager itself move as far? VARIANTS are legitimate runs of eager: without oneDNN, in channels_last, on another
   number of threads, with inputs moved up or down by one unit in the last place. DRAWS move inputs and parameters at
   random by up to MOVED eps: they sample the kinks within reach of a result that is right elsewhere, whose rounding may
   be 8 times eager's. Every tensor that is not right must be within what one of all these shows for that same tensor,
   and the rounding that is right without any kink. Tensors that are missing, all zero, not finite, or of another shape
   or dtype are never explained by it.
2. Is the compiled graph itself right? The same problem compiled in float64 must agree with eager in float64 to
   FLOAT64_AGREES, where rounding is nine digits away from any kink. A wrong index, mask or formula shows there.

Loss curves have no float64 rule: rounding grows over the optimizer's steps. Their limit is eager's own spread, the
largest distance between the curves of any two of eager's runs, and at least the 64 eps at which a result is right.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.torch_api import TorchDispatchMode

from . import numbers
from .models import describe
from .problem import Problem, copy_tensors, map_tensors, seed_everything, set_random_state, tensors_in
from .train_record import Conditioning
from .trainee import Trainee

MOVED = 16  # eps, a quarter of the floor of what is right
MOVES = 64
CURVES = 8  # of the draws give loss curves; the others are of one step
FLOAT64_AGREES = 1e-9  # relative to a tensor's largest value: seven digits above float64's rounding

Build = Callable[[], Problem]  # the same problem anew each time
Compile = Callable[[nn.Module], Callable[..., object]]


@dataclass(frozen=True)
class Variant:
    """A legitimate run of eager whose roundings differ from those of the plain one."""

    name: str
    context: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    change: Callable[[Problem], bool] = lambda problem: True  # False where it would change nothing
    one_step: bool = False  # it has no loss curve


@contextlib.contextmanager
def _without_onednn() -> Iterator[None]:
    with warnings.catch_warnings():  # that TF32 is for GPUs
        warnings.simplefilter("ignore")
        with torch.backends.mkldnn.flags(enabled=False):
            yield


@contextlib.contextmanager
def _other_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Order(TorchDispatchMode):
    """Notes whether random numbers were drawn into memory that is not row-major: they fall on other elements there."""

    def __init__(self) -> None:
        super().__init__()
        self.other = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.other |= any(not t.is_contiguous() for t in tensors_in((args, kwargs)))
        return func(*args, **kwargs or {})


def _channels_last(problem: Problem) -> bool:
    if not any(p.ndim == 4 for p in problem.module.parameters()):
        return False
    problem.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # mypy sees one overload

    def last(tensor: Tensor) -> Tensor:
        if tensor.ndim != 4:
            return tensor
        moved = tensor.detach().to(memory_format=torch.channels_last)
        return moved.requires_grad_(tensor.requires_grad)

    problem.args, problem.kwargs = map_tensors((problem.args, problem.kwargs), last)
    return True


def _one_ulp(towards: float) -> Callable[[Problem], bool]:
    """Moves the floating-point inputs by one unit in the last place; without any, the parameters."""

    def change(problem: Problem) -> bool:
        found = 0

        def move(tensor: Tensor) -> Tensor:
            nonlocal found
            if not tensor.is_floating_point():
                return tensor
            found += tensor.numel()
            moved = torch.nextafter(tensor.detach(), torch.full_like(tensor, towards))
            return moved.requires_grad_(tensor.requires_grad)

        problem.args, problem.kwargs = map_tensors((problem.args, problem.kwargs), move)
        if not found:
            with torch.no_grad():
                for parameter in problem.module.parameters():
                    parameter.copy_(move(parameter))
        return True

    return change


def _moved(draw: int) -> Callable[[Problem], bool]:
    """Moves every floating-point input and parameter by up to MOVED eps of itself, at random."""

    def change(problem: Problem) -> bool:
        generator = torch.Generator().manual_seed(draw)

        def move(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point():
                return tensor
            shift = torch.rand(tensor.shape, generator=generator) * 2 - 1
            moved = tensor.detach() * (1 + shift * (MOVED * torch.finfo(tensor.dtype).eps)).to(tensor.dtype)
            return moved.requires_grad_(tensor.requires_grad)

        problem.args, problem.kwargs = map_tensors((problem.args, problem.kwargs), move)
        with torch.no_grad():
            for parameter in problem.module.parameters():
                parameter.copy_(move(parameter))
        return True

    return change


VARIANTS = (
    Variant("without oneDNN", context=_without_onednn),
    Variant("channels_last", change=_channels_last),
    Variant("another number of threads", context=_other_threads),
    Variant("inputs moved up by one ulp", change=_one_ulp(math.inf)),
    Variant("inputs moved down by one ulp", change=_one_ulp(-math.inf)),
)
DRAWS = tuple(
    Variant(f"moved by up to {MOVED} eps, draw {draw}", change=_moved(draw), one_step=draw >= CURVES)
    for draw in range(MOVES)
)


@dataclass(frozen=True)
class VariantRun:
    """What one variant of eager left behind."""

    first: numbers.StepValues
    losses: list[float]


def eager_variants(
    build: Build, seed: int, steps: int, variants: Sequence[Variant] = (*VARIANTS, *DRAWS)
) -> Iterator[tuple[str, VariantRun]]:
    """`steps` AdamW steps of each variant of eager that changes something, one after the other.

    One that raises is left out, and so is one whose dropout masks lie in another order: its numbers are of other masks.
    """
    for variant in variants:
        problem = build()
        if not variant.change(problem):
            continue
        trainee = Trainee(problem, seed)
        try:
            with variant.context(), _Order() as order:
                for _ in range(1 if variant.one_step else steps):
                    set_random_state(trainee.random_state)
                    trainee.finish(trainee.step())
        except (RuntimeError, NotImplementedError):  # an op that has no such kernel
            continue
        if not order.other:
            yield variant.name, VariantRun(trainee.first, trainee.losses)


#: Tensor, by "kind name" -> its error.
Errors = Mapping[str, float]


def errors_of(reference: numbers.StepValues, eager: numbers.StepValues, run: numbers.StepValues) -> dict[str, float]:
    """The error of each tensor of a run, in the units of `numbers.Comparison`."""
    return {f"{kind} {c.name}": c.error for kind, c in numbers.compare_steps(reference, eager, run)}


class EagerSpread:
    """How far each of eager's variants is from float64, tensor by tensor.

    A variant runs when its figures are first asked for. The figures are kept and the tensors are not: there are many.
    """

    def __init__(self, build: Build, seed: int, reference: numbers.StepValues, eager: numbers.StepValues, steps: int):
        self._sides = reference, eager
        self._runs = eager_variants(build, seed, steps)
        self._found: list[tuple[str, Errors]] = []
        self._curves: list[list[float]] = []

    def __iter__(self) -> Iterator[tuple[str, Errors]]:
        known = 0
        while known < len(self._found) or self._run_one():
            yield self._found[known]
            known += 1

    def _run_one(self) -> bool:
        run = next(self._runs, None)
        if run is None:
            return False
        name, values = run
        self._found.append((name, errors_of(*self._sides, values.first)))
        self._curves.append(values.losses)
        return True

    def curves(self) -> list[list[float]]:
        """The loss curves of the variants that have one."""
        while len(self._found) < len(VARIANTS) + CURVES and self._run_one():
            pass
        return self._curves


def curve_limit(eager: list[float], variants: Sequence[list[float]]) -> float:
    """The largest relative difference of a loss curve from eager's that is within eager's own spread."""
    curves = [eager, *(losses for losses in variants if len(losses) == len(eager))]
    spread = max((numbers.curve_difference(a, b) for a, b in itertools.combinations(curves, 2)), default=0.0)
    return max(spread, numbers.RIGHT.floor_eps * torch.finfo(torch.float32).eps)


def conditioning(
    seed: int,
    reference: numbers.StepValues,
    eager: numbers.StepValues,
    result: numbers.StepValues,
    variants: Iterable[tuple[str, Errors]],
) -> Conditioning:
    """Whether eager's variants go as far as `result` wherever that is not right: the first question of the Note.

    Stops at the variant that answers it.
    """
    found = Conditioning(seed=seed)
    unanswered = {
        f"{kind} {c.name}": c
        for kind, c in numbers.compare_steps(reference, eager, result)
        if not c.right and c.verdict not in (numbers.Verdict.ZERO, numbers.Verdict.EMPTY)
    }
    found.tensors = len(unanswered)
    found.error = max((c.error for c in unanswered.values()), default=0.0)
    asked = list(unanswered)
    furthest = dict.fromkeys(unanswered, 0.0)
    for name, errors in variants:
        if not unanswered:
            break
        found.variants[name] = max(errors.get(tensor, 0.0) for tensor in asked)
        for tensor, comparison in list(unanswered.items()):
            furthest[tensor] = max(furthest[tensor], errors.get(tensor, 0.0))
            allowed = furthest[tensor] + comparison.allowed_right  # the same kink, and rounding that is right anyway
            if comparison.verdict is numbers.Verdict.ERROR and comparison.error <= allowed:
                del unanswered[tensor]
    found.beyond = [f"{c}; eager's variants reach {furthest[tensor]:.1e}" for tensor, c in unanswered.items()]
    found.covered = bool(found.tensors) and not found.beyond
    return found


def is_ill_conditioned(found: Conditioning) -> bool:
    """Whether both questions of the Note are answered yes."""
    return found.covered and found.float64 is not None and found.float64 <= FLOAT64_AGREES


def float64_difference(
    build: Build, seed: int, compile: Compile, did_nothing: Callable[[], str] = lambda: ""
) -> tuple[float | None, str]:
    """(how far the compiled float64 step is from eager's float64 step, why it is not known).

    The distance is the largest over loss, gradients and buffers, each relative to its largest value; where that is zero
    up to rounding, to the size at which the rounding of the set's largest value is FLOAT64_AGREES. None with a reason
    where one of the two does not run, or where `did_nothing`, asked after the step, says why no graph was compiled:
    a step that ran in eager agrees with eager, and proves nothing.
    """
    try:
        eager = _wide_step(build, seed, None)
        compiled = _wide_step(build, seed, compile)
    except Exception as error:
        return None, f"the float64 step did not run: {describe(error)}"
    if not torch_api.dynamo_graphs():
        return None, "the float64 step was not compiled"
    if reason := did_nothing():
        return None, f"the float64 step was not compiled: {reason}"
    largest = _distance(eager.loss, compiled.loss, 0.0)
    for one, other in ((eager.gradients, compiled.gradients), (eager.buffers, compiled.buffers)):
        floats = [t for t in one.values() if t is not None and t.is_floating_point() and t.numel()]
        noise = numbers.RIGHT.floor_eps * torch.finfo(torch.float64).eps
        smallest = max((float(t.abs().max()) for t in floats), default=0.0) * noise / FLOAT64_AGREES
        for name, tensor in one.items():
            largest = max(largest, _distance(tensor, other.get(name), smallest))
    return largest, ""


def _distance(eager: Tensor | None, result: Tensor | None, smallest: float) -> float:
    """The largest difference relative to `eager`'s largest value, which counts as at least `smallest`; infinity where
    the two cannot be compared."""
    if eager is None or result is None:
        other = eager if result is None else result
        return 0.0 if other is None or not bool(other.any()) else math.inf
    if eager.shape != result.shape or eager.dtype != result.dtype:
        return math.inf
    if not eager.is_floating_point() or not eager.numel():
        return 0.0 if torch.equal(eager, result) else math.inf
    scale = max(float(eager.abs().max()), smallest)
    difference = float((eager - result).abs().max())
    return difference / scale if scale else (0.0 if difference == 0 else math.inf)


def _wide_step(build: Build, seed: int, compile: Compile | None) -> numbers.StepValues:
    """One forward and backward of the problem in float64, compiled or in eager; random numbers are drawn in float64."""
    problem = build()
    problem.module.double()
    problem.args, problem.kwargs = copy_tensors((problem.args, problem.kwargs), widen=True)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.compiler.reset()
    torch_api.dynamo_clear_counters()
    try:
        function = problem.step_function()
        run = function if compile is None else compile(function)
        problem.module.zero_grad()
        seed_everything(seed)
        loss = problem.loss_of(run(*problem.args, **problem.kwargs))
        assert isinstance(loss, Tensor)
        loss.backward()
    finally:
        torch.set_default_dtype(default)
    return numbers.step_values(problem, loss)


def zeros_of_aot(build: Build, seed: int) -> frozenset[str]:
    """The parameters whose gradient AOTAutograd itself makes exactly zero: its graph, run in PyTorch's own kernels."""
    problem = build()
    torch.compiler.reset()
    try:
        function = torch.compile(problem.step_function(), backend="aot_eager")
        seed_everything(seed)
        problem.loss_of(function(*problem.args, **problem.kwargs)).backward()
    except Exception:  # no evidence, and none is made up
        return frozenset()
    finally:
        torch.compiler.reset()
    gradients = {name: p.grad for name, p in problem.named_parameters().items()}
    return frozenset(name for name, g in gradients.items() if g is not None and not bool(g.any()))
