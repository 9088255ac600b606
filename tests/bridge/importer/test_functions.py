# SPDX-License-Identifier: Apache-2.0
"""Special functions of mathematics: values over their ranges, special values, gradients, dtypes, symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import pytest
import torch
import tvm
from torch import Tensor
from tvm import te

from relaxgrad.bridge.importer.compute import bessel, program
from tests.bridge.importer.harness import run_test

nan, inf = float("nan"), float("inf")
special = torch.special
_SPECIAL_VALUES = [0.0, -0.0, 1.0, -1.0, -2.0, 2.0, 0.5, -0.5, inf, -inf, nan, 1e-40, 89.0, 100.0, 720.0, 1e17, -30.0]
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "aten.i0.default": torch.i0,
    "aten.special_i0e.default": special.i0e,
    "aten.special_i1.default": special.i1,
    "aten.special_i1e.default": special.i1e,
    "aten.digamma.default": torch.digamma,
    "aten.special_erfcx.default": special.erfcx,
    "aten.erfinv.default": torch.erfinv,
    "aten.special_ndtri.default": special.ndtri,
    "aten.special_modified_bessel_i0.default": special.modified_bessel_i0,
    "aten.special_modified_bessel_i1.default": special.modified_bessel_i1,
    "aten.special_modified_bessel_k0.default": special.modified_bessel_k0,
    "aten.special_modified_bessel_k1.default": special.modified_bessel_k1,
    "aten.special_scaled_modified_bessel_k0.default": special.scaled_modified_bessel_k0,
    "aten.special_scaled_modified_bessel_k1.default": special.scaled_modified_bessel_k1,
    "aten.special_spherical_bessel_j0.default": special.spherical_bessel_j0,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("op", list(_FUNCTIONS))
def test_special_values_and_ordinary_ones(op: str, dtype: torch.dtype) -> None:
    special_values = torch.tensor(_SPECIAL_VALUES, dtype=dtype)
    if dtype is torch.float64:  # eager is the reference: hold the two against each other directly
        special_values = torch.cat([special_values, torch.tensor([1e-300, -1e300, 1e300, 0.999999, 1e-17]).double()])
    run_test(lambda x: _FUNCTIONS[op](x), special_values, grad=False, ops=[op])
    ordinary = torch.rand(300, dtype=dtype) if "inv" in op or "ndtri" in op else torch.randn(300, dtype=dtype) * 5
    run_test(lambda x: _FUNCTIONS[op](x), ordinary, grad=False)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
def test_polygamma(n: int) -> None:
    poles = torch.tensor([0.0, -0.0, -1.0, -7.0, inf, -inf, nan, 1e-30, 1e30, 0.5, -0.5, 9.5, 10.0, 40.0])
    ordinary = torch.cat([torch.randn(50) * 6, torch.tensor([-12.25, -13.0, -100.7, -5000.4])])
    run_test(lambda x: torch.polygamma(n, x), poles, then=[(poles.neg(),)], grad=False)
    run_test(lambda x: torch.polygamma(n, x), ordinary.abs(), ops=[] if n == 0 else ["aten.polygamma.default"])
    run_test(lambda x: torch.polygamma(n, x), ordinary.double(), grad=False)


def test_zeta() -> None:
    s = torch.tensor([[0.5], [1.0], [1.001], [2.0], [2.5], [3.0], [30.0], [70.0], [250.0], [nan]])
    q = torch.tensor([0.0, -2.0, -2.5, -30.25, -1000.5, 1e-3, 0.5, 1.0, 9.0, 80.0, 1e6, nan])

    def zetas(s: Tensor, q: Tensor) -> tuple[Tensor, ...]:
        return special.zeta(s, q), special.zeta(3, q), special.zeta(s, 2.5)

    run_test(zetas, s, q, grad=False, ops=["aten.special_zeta.default"])
    run_test(zetas, torch.rand(9, 1).double() * 20 + 1, torch.rand(11).double() * 9, grad=False)


def test_gradients_and_symbolic_sizes() -> None:
    def functions(x: Tensor) -> list[Tensor]:
        unit = x.sigmoid()
        return [
            torch.i0(x), special.i0e(x), special.i1(x), special.i1e(x), torch.digamma(unit * 9), special.erfcx(x),
            torch.erfinv(unit), special.ndtri(unit), special.log_ndtr(x), torch.lgamma(unit * 3),
            torch.mvlgamma(unit + 2, 3),
        ]  # fmt: skip

    run_test(functions, torch.randn(4, 5), then=[(torch.randn(3, 70),)], dynamic=True)


def test_functions_of_halves_and_integers_and_many_elements() -> None:
    def functions(*tensors: Tensor) -> list[Tensor]:
        return [f(x) for x in tensors for f in (torch.i0, torch.digamma, torch.erfinv)]

    halves = [torch.rand(20).to(d) for d in (torch.float16, torch.bfloat16)]
    run_test(functions, *halves, grad=False)
    run_test(lambda x: (torch.i0(x), torch.digamma(x), special.erfcx(x)), torch.arange(5))
    run_test(functions, torch.rand(3, 4099) * 0.9 + 0.05)  # enough for the kernel to spread over threads


@pytest.mark.parametrize(
    ("function", "exact", "points"),
    [
        (torch.erfinv, mpmath.erfinv, [1e-300, 0.1, 0.4999, 0.5, 0.51, 0.9, 0.998, 0.9999, 1 - 2**-40, 1 - 2**-53]),
        (special.ndtri, lambda p: -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * p), [1e-9, 0.001, 0.2499, 0.3, 0.7501]),
        (special.erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x), [1e-9, 2.0, 2.01, 7.99, 8.01, 900.0, -3.0]),
        (special.i0e, lambda x: mpmath.besseli(0, x) * mpmath.exp(-x), [1e-9, 1.0, 7.99, 8.01, 30.0, 500.0]),
        (special.i1e, lambda x: mpmath.besseli(1, x) * mpmath.exp(-x), [1e-9, 1.0, 7.99, 8.01, 30.0, 500.0]),
        (torch.digamma, mpmath.digamma, [1e-9, 0.3, 1.0, 5.5, 9.99, 10.01, 1e9, -0.5, -7.25]),
        (lambda x: torch.polygamma(2, x), lambda x: mpmath.psi(2, x), [0.3, 1.0, 12.9, 13.1, 1e4, -0.5, -7.25, -40.1]),
    ],
    ids=["erfinv", "ndtri", "erfcx", "i0e", "i1e", "digamma", "polygamma"],
)  # fmt: skip
def test_float64_values_are_good_to_the_last_places(
    function: Callable[[Tensor], Tensor], exact: Callable[[float], float], points: list[float]
) -> None:
    """Against 60 digits: ATen, the reference of the other tests, is no better here."""
    from relaxgrad.bridge.backend import relaxgrad

    found = torch.compile(lambda x: function(x), backend=relaxgrad)(torch.tensor(points, dtype=torch.float64))
    with mpmath.workdps(60):
        for point, value in zip(points, found.tolist(), strict=True):
            truth = exact(mpmath.mpf(point))
            assert abs(value - truth) <= 4e-15 * abs(truth), (point, value, truth)


def test_scalars_of_a_program_lie_in_registers() -> None:
    """TVM takes some local buffers from the heap, for each element: a function then costs twenty times as much."""
    x = te.placeholder((64, 1000), "float32", name="x")
    kernel = te.create_prim_func([x, program.elementwise(bessel.i0e)(x, x.shape, "float32", "float32")])
    compiled = tvm.compile(tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")}), target="llvm")
    source = compiled.mod.inspect_source("ll")
    assert "define" in source
    assert "AllocWorkspace" not in source
