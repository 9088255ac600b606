# SPDX-License-Identifier: Apache-2.0
"""Vector math: errors in units in the last place, special values, and that it is vector code."""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import tvm
from torch import Tensor
from tvm import s_tir, te, tirx

from relaxgrad.bridge.device import host
from relaxgrad.bridge.devices.cpu.math import FUNCTIONS
from relaxgrad.bridge.devices.cpu.passes import intrinsics
from relaxgrad.bridge.importer.compute import intrinsic
from relaxgrad.bridge.targets import resolve_target
from tests.bridge.compile.kernels import scheduled
from tests.expected_skips import Lacking, skip

#: What TVM names differently.
_NAMES: dict[str, Callable[..., Any]] = {name: functools.partial(intrinsic.call, name) for name in intrinsic.OPS}
#: Largest error found in units in the last place, rounded up: over all exponents with 2,048 mantissas each, of asin and
#: sigmoid over all of their worst binades.
BOUNDS = {
    "acos": 1.3, "acosh": 1.6, "asin": 1.4, "asinh": 1.6, "atan": 1.4, "atanh": 1.6, "cos": 0.8, "cosh": 1.5,
    "erf": 1.3, "erfc": 0.9, "exp": 1.0, "exp2": 1.3, "expm1": 1.5, "log": 1.0, "log10": 1.3, "log1p": 1.6, "log2": 1.4,
    "pow": 0.9, "sigmoid": 2.0, "sin": 0.8, "sinh": 1.7, "tan": 0.6, "tanh": 1.4,
}  # fmt: skip
TARGETS = ("llvm", "llvm:skylake-avx512", "llvm:haswell", "llvm:x86-64")
UNARY = sorted(name for name, (_, arguments) in FUNCTIONS.items() if arguments == 1)
SPECIAL = [
    math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -1e-45, 1e-38, -1e-38, 3.4e38, -3.4e38, 1.0, -1.0, 0.5, -0.5, 2.0,
    -2.0, 3.0, -3.0, 4.0, 1.5, -2.5, 88.72, 88.73, 89.0, -87.4, -103.9, -104.0, 128.0, -149.0, -150.0, 10.06, 9.01,
    2.0**24, 2.0**24 - 1, 2.0**25 + 4, 1e10, 1e22, 16.0, -16.0,
]  # fmt: skip


def _function(name: str) -> Callable[..., Any]:
    return _NAMES.get(name) or getattr(tirx, name)


def _compiled(function: Callable[..., Any], inputs: list[Tensor], target: str = "llvm", vector: bool = True) -> Any:
    placeholders = [te.placeholder(tuple(x.shape), dtype=_dtype(x), name=f"x{i}") for i, x in enumerate(inputs)]
    y = te.compute(inputs[0].shape, lambda i: function(*(p(i) for p in placeholders)), name="y")
    kernel = te.create_prim_func([*placeholders, y], index_dtype_override="int64")
    module = tvm.IRModule({"main": scheduled(kernel) if vector else kernel})
    with intrinsics.in_use():
        return tvm.compile(intrinsics.link()(module), target=resolve_target(target, to_run=False))


def _dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _run(function: Callable[..., Any], *inputs: Tensor, target: str = "llvm", vector: bool = True) -> Tensor:
    if not host().can_run(resolve_target(target, to_run=False))[0]:
        skip(Lacking.CPU_TARGET, f"this machine does not run {target}")
    result = torch.full_like(inputs[0], 77)
    _compiled(function, list(inputs), target, vector)["main"](*inputs, result)
    return result


def _exact(name: str, *inputs: Tensor) -> Tensor:
    return getattr(torch, name)(*(x.double() for x in inputs))


def _ulps(value: Tensor, exact: Tensor) -> Tensor:
    """Errors of finite results; infinite where only one of value and exact result is NaN or infinite."""
    nearest = exact.float()
    above = torch.nextafter(nearest.abs(), torch.tensor(math.inf))
    finite = torch.isfinite(above)  # next to the largest float the spacing is not known
    error = (value.double() - exact).abs() / (above - nearest.abs()).double()
    error = torch.where(finite, error, 0.0)
    same = (value == nearest) | (value.isnan() & nearest.isnan())
    wrong = torch.where(finite, ~torch.isfinite(value), ~(same | (nearest.abs() == above.nan_to_num(posinf=3.4e38))))
    wrong &= finite | ~torch.isfinite(nearest)
    return torch.where(wrong, math.inf, error)


def _arguments(name: str, per_exponent: int = 128) -> list[Tensor]:
    """Every binary exponent, denormals included, with random mantissas and both signs; dense where functions bend."""
    generator = torch.Generator().manual_seed(1)
    exponents = torch.arange(0, 255, dtype=torch.int32).repeat_interleave(per_exponent)
    mantissas = torch.randint(0, 1 << 23, exponents.shape, dtype=torch.int32, generator=generator)
    positive = ((exponents << 23) | mantissas).view(torch.float32)
    ranges = [(-110.0, 95.0), (-5.0, 5.0), (-1.01, 1.01), (-160.0, 140.0)]
    x = torch.cat([positive, -positive, *(torch.linspace(a, b, 1 << 15) for a, b in ranges)])
    if name == "pow":
        count = 1 << 17
        near_one = 1 + torch.randn(count, generator=generator) * 0.1
        bases = [torch.exp2(torch.rand(count, generator=generator) * 256 - 130), near_one.abs(), -near_one.abs() * 3]
        whole = torch.randint(-60, 60, (count,), generator=generator).float()
        powers = [torch.randn(count, generator=generator), torch.randn(count, generator=generator) * 500, whole]
        return [torch.cat(bases), torch.cat(powers)]
    return [x]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_error_over_all_exponents_on_each_target(name: str, target: str) -> None:
    x = _arguments(name)
    vector = _run(_function(name), *x, target=target)
    assert _ulps(vector, _exact(name, *x)).max() <= BOUNDS[name] <= 2.0
    # An element's result does not depend on where it lies.
    scalar = _run(_function(name), *x, target=target, vector=False)
    assert torch.equal(vector.nan_to_num(nan=123.0), scalar.nan_to_num(nan=123.0))


@pytest.mark.parametrize("target", TARGETS)
def test_roots_are_within_two_ulp(target: str) -> None:
    """They are instructions; torch.rsqrt is one over the root as well."""
    (x,) = _arguments("sqrt")
    one = tirx.const(1.0, "float32")
    assert _ulps(_run(tirx.sqrt, x, target=target), x.double().sqrt()).max() <= 0.5
    assert _ulps(_run(lambda v: one / tirx.sqrt(v), x, target=target), x.double().rsqrt()).max() <= 1.5


@pytest.mark.slow  # ten minutes or more each
@pytest.mark.parametrize("name", UNARY)
def test_error_over_all_floats(name: str) -> None:
    size = 1 << 22
    kernel = _compiled(_function(name), [torch.empty(size)])["main"]
    result = torch.empty(size)
    worst = 0.0
    for start in range(-(1 << 31), 1 << 31, size):
        x = torch.arange(start, start + size).to(torch.int32).view(torch.float32)
        kernel(x, result)
        worst = max(worst, float(_ulps(result, _exact(name, x)).max()))
    assert worst <= BOUNDS[name]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_special_values_and_signs_of_zero(name: str) -> None:
    values = torch.tensor(SPECIAL)
    arguments = [values]
    if name == "pow":
        arguments = [t.reshape(-1).contiguous() for t in torch.meshgrid(values, values, indexing="ij")]
    exact = _exact(name, *arguments)
    for vector in (True, False):
        result = _run(_function(name), *arguments, vector=vector)
        assert _ulps(result, exact).max() <= BOUNDS[name]
        assert torch.equal(torch.isnan(result), torch.isnan(exact))
        signed = ~torch.isnan(exact)
        assert torch.equal(torch.signbit(result)[signed], torch.signbit(exact)[signed])


def test_large_angles_beside_small_ones() -> None:
    """Only some lanes take the long reduction: the results are those that each argument has among its like."""
    generator = torch.Generator().manual_seed(2)
    small = torch.randn(1024, generator=generator) * 30
    large = torch.exp2(torch.rand(1024, generator=generator) * 107 + 20)
    mixed = torch.stack([small, large], dim=1).reshape(-1)
    for name in ("sin", "cos", "tan"):
        function = _function(name)
        apart = torch.stack([_run(function, small), _run(function, large)], dim=1).reshape(-1)
        result = _run(function, mixed)
        assert torch.equal(result, apart)
        assert _ulps(result, _exact(name, mixed)).max() <= BOUNDS[name]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("exp", -104.0, -86.0), ("exp", 88.0, 88.8), ("exp2", -150.0, -125.0), ("sigmoid", -104.0, -86.0),
     ("tanh", 0.62, 0.63), ("erf", 0.99, 1.01), ("expm1", -0.1, 0.1), ("log", 0.5, 2.0), ("log1p", -0.3, 0.5)],
)  # fmt: skip
def test_monotonic_at_thresholds(name: str, low: float, high: float) -> None:
    """A step back, where errors of neighbours differ, is of one ulp at most."""
    x = torch.linspace(low, high, 1 << 18)
    result = _run(_function(name), x)
    earlier, later = result[:-1], result[1:]
    assert (earlier <= torch.nextafter(later, torch.tensor(math.inf))).all()


@pytest.mark.parametrize("vector", [True, False], ids=["vector", "scalar"])
@pytest.mark.parametrize("target", TARGETS)
def test_machine_code_is_vector_code_without_calls(target: str, vector: bool) -> None:
    """Scalar loops of sin, cos and tan stay scalar: they branch to the long reduction."""
    names = [n for n in FUNCTIONS if vector or n not in ("sin", "cos", "tan")]

    def everything(x: Any) -> Any:
        results = [_function(n)(*[x] * FUNCTIONS[n][1]) for n in names]
        return functools.reduce(lambda a, b: a + b, results)

    text = _compiled(everything, [torch.empty(4096)], target, vector).mod.inspect_source("asm")
    calls = set(re.findall(r"\bcall[ql]?\s+\*?([^%(\s]+)$", text, re.MULTILINE))
    assert not [c for c in calls if "tvm" not in c.lower() and not c.startswith("main_compute_")], calls
    arithmetic = r"\bv?(mul|add|sub|div|sqrt|fn?m(?:add|sub)\d+)"
    assert re.search(arithmetic + r"ps\b", text)
    assert not re.search(arithmetic + r"ss\b", text)


def test_functions_of_functions_compile_in_time() -> None:
    """Each function uses its argument several times: as expressions these would have had millions of nodes."""

    def deep(x: Any) -> Any:
        for name in ("exp", "log1p", "tanh", "exp", "sigmoid", "erf", "sin", "expm1"):
            x = _function(name)(x)
        return x

    start = time.thread_time()
    kernel = _compiled(deep, [torch.empty(4096)])
    assert time.thread_time() - start < 1.0
    x, result = torch.linspace(-2, 2, 4096), torch.empty(4096)
    kernel["main"](x, result)
    exact = x.double()
    for name in ("exp", "log1p", "tanh", "exp", "sigmoid", "erf", "sin", "expm1"):
        exact = getattr(torch, name)(exact)
    torch.testing.assert_close(result.double(), exact, rtol=2e-6, atol=0)


def test_twenty_in_one_kernel_compile_in_time() -> None:
    def many(x: Any) -> Any:
        return functools.reduce(lambda a, b: a + b, [tirx.exp(x * tirx.const(0.1 * i, "float32")) for i in range(20)])

    start = time.thread_time()
    _compiled(many, [torch.empty(4096)])
    assert time.thread_time() - start < 1.0


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_float64_keeps_its_precision(name: str) -> None:
    x = [torch.linspace(0.05, 0.95, 64, dtype=torch.float64) + (1 if name == "acosh" else 0)] * FUNCTIONS[name][1]
    result = _run(_function(name), *x)
    torch.testing.assert_close(result, _exact(name, *x), rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", ["exp", "expm1", "erf", "log1p", "sigmoid"])
def test_half_is_computed_in_float32(name: str) -> None:
    x = torch.linspace(-0.9, 4, 64).half()
    assert torch.equal(_run(_function(name), x), _exact(name, x).half())


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
def test_vectors_of_other_widths(lanes: int) -> None:
    x = torch.linspace(-3, 3, 256)
    placeholder = te.placeholder((256,), dtype="float32", name="x")
    y = te.compute((256,), lambda i: tirx.exp(intrinsic.call("expm1", placeholder(i))), name="y")
    schedule = s_tir.Schedule(te.create_prim_func([placeholder, y], index_dtype_override="int64"))
    (loop,) = schedule.get_loops(schedule.get_sblock("y"))
    schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    result = torch.empty(256)
    with intrinsics.in_use():
        library = tvm.compile(intrinsics.link()(schedule.mod), target=resolve_target("llvm"))
    library["main"](x, result)
    torch.testing.assert_close(result.double(), x.double().expm1().exp(), rtol=3e-6, atol=0)


def test_what_others_compile_in_this_process_keeps_its_lowering() -> None:
    """They link none of our functions: a call of one would jump to nowhere."""
    x = torch.linspace(-3, 3, 64)
    _run(tirx.tanh, x)
    t = te.placeholder((64,), name="x")
    kernel = te.create_prim_func([t, te.compute(t.shape, lambda i: tirx.tanh(t(i)), name="theirs")])
    result = torch.empty_like(x)
    tvm.compile(kernel, target="llvm")["main"](x, result)
    torch.testing.assert_close(result, torch.tanh(x))
