# SPDX-License-Identifier: Apache-2.0
"""Derivatives of the logarithm of the gamma function, and Hurwitz's zeta function.

Formulas: the recurrence, reflection and asymptotic series of digamma and trigamma (NIST DLMF 5.5, 5.11, 5.15), the
Euler-Maclaurin sum of Hurwitz's zeta function (DLMF 25.11). Special values as in ATen/native/Math.h.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

from tvm import tirx

from . import intrinsic
from . import pointwise as pw
from .pointwise import Expr, number
from .program import Program


def _f(value: float) -> Expr:
    return number(value, "float64")


@functools.cache
def bernoulli(n: int) -> Fraction:
    """The Bernoulli number B_n, with B_1 = -1/2."""
    if n == 0:
        return Fraction(1)
    return -sum((math.comb(n + 1, k) * bernoulli(k) for k in range(n)), Fraction(0)) / (n + 1)


#: B_2k / 2k, k from 1: from 10 on the terms of the series after these are below the last place.
_DIGAMMA_SERIES = tuple(float(bernoulli(2 * k) / (2 * k)) for k in range(1, 8))


def digamma(p: Program, x: Expr) -> Expr:
    """float64. Infinite with the sign of -x at zero, NaN at negative integers."""
    whole = p.let(tirx.trunc(x))
    z = p.cell(tirx.Select(x < _f(0), _f(1) - x, x))
    total = p.cell(_f(0))
    with p.loop(z.get() < _f(10)):
        total.set(total.get() - _f(1) / z.get())
        z.set(z.get() + _f(1))
    v = p.let(_f(1) / (z.get() * z.get()))
    series = p.polynomial(v, _DIGAMMA_SERIES)
    positive = p.let(total.get() + tirx.log(z.get()) - _f(0.5) / z.get() - v * series)
    pole = tirx.all(x < _f(0), tirx.EQ(x, whole))
    return p.choose(
        [
            (tirx.EQ(x, _f(0)), lambda: tirx.copysign(_f(math.inf), pw.negative(x))),
            (pole, lambda: _f(math.nan)),
            (x < _f(0), lambda: positive - _f(math.pi) / pw.libm("tan")(_f(math.pi) * (x - whole))),
        ],
        lambda: positive,
    )


def trigamma(p: Program, x: Expr) -> Expr:
    """float64, with as few terms of the asymptotic series as ATen takes: its values are good to some 1e-9."""
    left = x < _f(0.5)
    total, z, sign = p.cell(_f(0)), p.cell(x), p.cell(_f(1))
    with p.when(left):
        sine = p.let(tirx.sin(_f(math.pi) * x))
        total.set(pw.negative(_f(math.pi**2) / (sine * sine)))
        z.set(_f(1) - x)
        sign.set(_f(-1))
    for _ in range(6):
        total.set(total.get() + _f(1) / (z.get() * z.get()))
        z.set(z.get() + _f(1))
    v = p.let(_f(1) / (z.get() * z.get()))
    series = p.polynomial(v, [1.0, *(float(bernoulli(2 * k)) for k in range(1, 4))])
    return p.let(sign.get() * (total.get() + (series + _f(1) / (_f(2) * z.get())) / z.get()))


#: B_2k / (2k)!, k from 1.
_ZETA_SERIES = tuple(float(bernoulli(2 * k) / math.factorial(2 * k)) for k in range(1, 13))


def _zeta_tail(p: Program, s: Expr, w: Expr) -> Expr:
    """The sum of (w + k)^-s over k = 0, 1, ..., for s > 1 and w of about 10 + s or more: Euler-Maclaurin."""
    r = p.let(_f(1) / w)
    total, term = p.cell(w / (s - _f(1)) + _f(0.5)), p.cell(s * r)
    for k, c in enumerate(_ZETA_SERIES):
        total.set(total.get() + _f(c) * term.get())
        term.set(term.get() * (s + _f(2 * k + 1)) * (s + _f(2 * k + 2)) * (r * r))
    power = p.let(intrinsic.power(w, pw.negative(s)))
    gone = tirx.all(tirx.EQ(power, _f(0)), w < _f(math.inf))  # then the rest may be infinite
    return p.let(tirx.Select(gone, _f(0), power * total.get()))


def zeta(p: Program, s: Expr, q: Expr) -> Expr:
    """Hurwitz's zeta function, float64: infinite at s = 1 and at q = 0, -1, ..., NaN for s < 1 and where it is complex.

    The terms near zero are added one by one, those far from it on either side by the series.
    """
    whole = p.let(tirx.floor(s))
    far = p.let(_f(10) + pw.minimum(s, _f(60)))
    z, total = p.cell(q), p.cell(_f(0))
    with p.when(q < pw.negative(far)):
        z.set(q + tirx.floor(pw.negative(far) - q))
        skipped = _zeta_tail(p, s, p.let(_f(1) - z.get())) - _zeta_tail(p, s, p.let(_f(1) - q))
        odd = tirx.NE(pw.libm("fmod")(whole, _f(2)), _f(0))
        total.set(tirx.Select(odd, pw.negative(skipped), skipped))
    with p.loop(z.get() < far):
        total.set(total.get() + intrinsic.power(z.get(), pw.negative(s)))
        z.set(z.get() + _f(1))
    return p.choose(
        [
            (tirx.EQ(s, _f(1)), lambda: _f(math.inf)),
            (s < _f(1), lambda: _f(math.nan)),
            (tirx.all(q <= _f(0), tirx.EQ(q, tirx.floor(q))), lambda: _f(math.inf)),
            (tirx.all(q < _f(0), tirx.any(s > whole, s < whole)), lambda: _f(math.nan)),
        ],
        lambda: total.get() + _zeta_tail(p, s, p.let(z.get())),
    )


def polygamma(n: int) -> Callable[[Program, Expr], Expr]:
    """The n-th derivative of digamma, for n >= 2, in the dtype of its argument: (-1)^(n+1) n! zeta(n + 1, x).

    The factor is rounded and multiplied in that dtype, where either may overflow, as in ATen.
    """
    factor = float(math.factorial(n)) if n <= 170 else math.inf

    def compute(p: Program, x: Expr) -> Expr:
        dtype = pw.dtype_of(x)
        sum_of_powers = zeta(p, _f(n + 1), p.let(pw.cast(x, "float64")))
        largest = 3.4028234663852886e38 if dtype == "float32" else math.inf
        rounded = factor if factor <= largest else math.inf
        return number(rounded if n % 2 else -rounded, dtype) * p.let(pw.cast(sum_of_powers, dtype))

    return compute
