# SPDX-License-Identifier: Apache-2.0
"""Sine, cosine and tangent for arguments of any size, and their inverses."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable

from .lanes import ROUND, Lanes, Value

# (sin(x) / x - 1) / x^2 in x^2, on |x| <= 1.5725
_SIN = (-0.16666661040236255, 0.00833308267848357, -0.00019809821633714645, 2.604847986581879e-06)
# (tan(x) / x - 1) / x^2 in x^2, on |x| <= 0.787
_TAN = (0.33333332442783564, 0.13333394799266632, 0.0539558279652605, 0.021982292359857, 0.008323171639607625,
        0.005036555647216985, -0.0006644395615308256, 0.0020779360865268706)  # fmt: skip
# (asin(x) / x - 1) / x^2 in x^2, on |x| <= 0.5
_ASIN = (0.16666731146014477, 0.07495668270243805, 0.04546570129356124, 0.024057044689984982, 0.0425535991060774)
# (atan(x) / x - 1) / x^2 in x^2, on |x| <= 1
_ATAN = (-0.33333312366917195, 0.19998842189770497, -0.1426634639790786, 0.10958582426322272, -0.08410654565410637,
         0.057913541726363635, -0.03099129028863592, 0.010748500245625604, -0.0017437011444758157)  # fmt: skip

# pi in two parts, the first of 33 bits: its products with the integers and halves below 2^19 are exact in float64
_PI_HIGH = 3.1415926534682512
_PI_LOW = 1.2154201013012384e-10
# pi/2 in two parts of float32
_HALF_PI_HIGH = 1.57079637050628662109375
_HALF_PI_LOW = -4.37113882867379e-08
#: From here on the products with pi lose bits.
_LARGE = 2.0**20
# 1 / pi in pieces of 28 bits, from the point on
_INVERSE_PI = (85445659, 120005130, 156229946, 199817882, 116262619, 21679262, 35422735)


def _reduced(b: Lanes, d: Value, turns: float, shift: float) -> tuple[Value, Value]:
    """(r, int64 bits whose lowest is n's) with d = (n - shift) pi / turns + r and |r| <= pi / turns / 2; |d| < 2^20."""
    if shift == 0.0:
        raised, n = b.rounded(d, turns / math.pi)
    else:
        raised, n = b.rounded(b.multiply_add(d, turns / math.pi, shift))
        n = n - shift
    r = b.multiply_add(n, -_PI_HIGH / turns, d)
    return b.multiply_add(n, -_PI_LOW / turns, r), b.bits(raised)


def _reduced_large(b: Lanes, d: Value, turns: float, shift: float) -> tuple[Value, Value]:
    """As `_reduced`, for float32 numbers of any size: d / pi without its even part, piece by piece.

    The product of d, which has 24 bits, with a piece of 28 is exact. So is what it leaves over an even number. Where
    the sum is close to an integer, taking that off the largest remainder first makes the sums exact that cancel.
    (Payne and Hanek's reduction, with floats for the window of bits.) NaN for infinities.
    """
    remainders = []
    for place, piece in enumerate(_INVERSE_PI):
        product = d * (turns * piece * 2.0 ** (-28 * (place + 1)))
        if 28 * place < 128 + 1:
            _, half = b.rounded(product, 0.5)
            remainder = b.multiply_add(half, -2.0, product)
            if 28 * place < 128 + 1 - 52:  # may be too large to be rounded, and is even then
                remainder = b.select(b.absolute(product) < 2.0**52, remainder, 0.0)
            product = remainder
        remainders.append(product)
    raised = functools.reduce(operator.add, reversed(remainders)) + shift + ROUND["double"]
    rest = functools.reduce(operator.add, remainders, shift - (raised - ROUND["double"]))
    return rest * (math.pi / turns), b.bits(raised)


def _by_reduction(
    b: Lanes, x: Value, turns: float, shift: float, finish: Callable[[Lanes, Value, Value], Value]
) -> Value:
    """`finish(b, r, bits)` of the reduced argument; the long reduction runs where any lane needs it."""
    d = b.cast(x, "double")
    common = finish(b, *_reduced(b, d, turns, shift))

    def rare() -> Value:
        return finish(b, *_reduced_large(b, d, turns, shift))

    return b.where_any(b.absolute(x) >= _LARGE, rare, common)


def _odd(b: Lanes, r: Value, coefficients: tuple[float, ...]) -> Value:
    """r (1 + u P(u)) with u = r^2, in float64; keeps -0.0."""
    return r * b.polynomial(r * r, (1.0, *coefficients))


def _sine_of_reduced(b: Lanes, r: Value, bits: Value) -> Value:
    """sin(r), with the other sign where the bits are odd."""
    sign = bits << 63
    return b.cast(b.from_bits(b.bits(_odd(b, r, _SIN)) ^ sign), "float")


def sin(b: Lanes, x: Value) -> Value:
    return _by_reduction(b, x, 1.0, 0.0, _sine_of_reduced)


def cos(b: Lanes, x: Value) -> Value:
    """cos((n - 1/2) pi + r) = sin(n pi + r)"""
    return _by_reduction(b, x, 1.0, 0.5, _sine_of_reduced)


def tan(b: Lanes, x: Value) -> Value:
    def finish(b: Lanes, r: Value, bits: Value) -> Value:
        t = _odd(b, r, _TAN)
        odd = (bits & 1).equals(1)
        return b.cast(b.select(odd, -1.0, t) / b.select(odd, t, 1.0), "float")

    return _by_reduction(b, x, 2.0, 0.0, finish)


def _arcsine(b: Lanes, a: Value) -> tuple[Value, Value, Value]:
    """(whether a < 1/2, t, rest) with t + rest the arcsine of a there, else of sqrt((1 - a) / 2), which is t; t is NaN
    for a > 1."""
    near = a < 0.5
    square = b.select(near, a * a, b.multiply_add(a, -0.5, 0.5))
    t = b.select(near, a, b.sqrt(square))
    return near, t, t * square * b.polynomial(square, _ASIN)


def asin(b: Lanes, x: Value) -> Value:
    """The polynomial for |x| < 1/2, else pi/2 - 2 asin(sqrt((1 - |x|) / 2))."""
    near, t, rest = _arcsine(b, b.absolute(x))
    twice = t + t
    difference = _HALF_PI_HIGH - twice
    lost = (_HALF_PI_HIGH - difference) - twice  # to rounding: exact
    far = difference + (lost - b.multiply_add(rest, 2.0, -_HALF_PI_LOW))
    return b.with_sign(b.select(near, t + rest, far), x)


def acos(b: Lanes, x: Value) -> Value:
    """pi/2 - asin(x) for |x| < 1/2, else 2 asin(sqrt((1 - |x|) / 2)), from pi for negative x."""
    near, t, rest = _arcsine(b, b.absolute(x))
    p = t + rest
    angle = b.with_sign(b.select(near, p, p + p), x)
    right_angles = b.select(near, 1.0, b.select(x < 0.0, 2.0, 0.0))
    signed = b.select(near, angle * -1.0, angle)
    low = b.multiply_add(right_angles, _HALF_PI_LOW, signed)
    return b.multiply_add(right_angles, _HALF_PI_HIGH, low)


def atan(b: Lanes, x: Value) -> Value:
    """The polynomial of |x|, or beyond 1 that of -1 / |x|, from pi/2."""
    a = b.absolute(x)
    beyond = a > 1.0
    t = b.select(beyond, -1.0 / a, a)
    u = t * t
    p = b.multiply_add(t * u, b.polynomial(u, _ATAN), t)
    turned = b.select(beyond, _HALF_PI_HIGH, 0.0) + (p + b.select(beyond, _HALF_PI_LOW, 0.0))
    return b.with_sign(turned, x)
