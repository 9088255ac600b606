# SPDX-License-Identifier: Apache-2.0
"""Logarithms: x = 2^e (1 + f) with 1 + f between sqrt(1/2) and sqrt(2), then a polynomial in f."""

from __future__ import annotations

import math

from .exponential import LN2_HIGH, LN2_LOW
from .lanes import ONE_BITS, ROUND, Lanes, Value

# On -0.2929 <= f <= 0.4143: (log(1 + f) - f) / f^2
_LOG = (-0.4999998834168499, 0.33333325728773516, -0.2500158344988825, 0.2000197160936584, -0.16609067430087013,
        0.14181864962944923, -0.13243168966007826, 0.1290423334939673, -0.07621041412126538)  # fmt: skip
# (log2(1 + f) - f) / f
_LOG2 = (0.44269504082806144, -0.7213473514210644, 0.48089824174458845, -0.36069665728659434, 0.2885673713461557,
         -0.2396171677534447, 0.20460122209193266, -0.1910655025224492, 0.18617201985596088,
         -0.109938614344624)  # fmt: skip
# (log10(1 + f) - f / 2) / f
_LOG10 = (-0.06570551811508149, -0.21714719007050737, 0.14476479562718964, -0.10858051317899602, 0.0868674345450997,
          -0.0721319549698349, 0.06159110499917974, -0.05751644739586927, 0.05604336232999453,
          -0.033094820599466265)  # fmt: skip
# log10(2) in two parts, the first with so few bits that its products with exponents are exact
_LOG10_2_HIGH = 0.30078125
_LOG10_2_LOW = math.log10(2) - _LOG10_2_HIGH

_SQRT_HALF_BITS = 0x3F3504F3
_SQRT_HALF_LONG = 0x3FE6A09E667F3BCD
_ROUND_LONG = 0x4338000000000000  # the bits of ROUND["double"]


def _exponent(b: Lanes, bits: Value) -> Value:
    """e of a positive normal float32, an int32."""
    return (bits - _SQRT_HALF_BITS) >> 23


def _split(b: Lanes, x: Value) -> tuple[Value, Value]:
    """(e, f) of positive float32 numbers, denormals included."""
    denormal = x < 2.0**-126
    bits = b.bits(b.select(denormal, x * 2.0**23, x))
    exponent = _exponent(b, bits)
    f = b.from_bits(bits - (exponent << 23)) - 1.0
    return b.cast(exponent, "float") + b.select(denormal, -23.0, 0.0), f


def split_double(b: Lanes, x: Value) -> tuple[Value, Value]:
    """(e, f) of positive normal float64 numbers; CPUs before AVX-512 convert no int64, adding ROUND's bits does."""
    bits = b.bits(x)
    exponent = (bits - _SQRT_HALF_LONG) >> 52
    f = b.from_bits(bits - (exponent << 52)) - 1.0
    return b.from_bits(exponent + _ROUND_LONG) - ROUND["double"], f


def _natural(b: Lanes, e: Value, f: Value) -> Value:
    """e ln 2 + log(1 + f)"""
    rest = b.multiply_add(f * f, b.polynomial(f, _LOG), e * LN2_LOW)
    return b.multiply_add(e, LN2_HIGH, f + rest)


def _special(b: Lanes, x: Value, value: Value, pole: float = 0.0) -> Value:
    """`value`, but minus infinity at the pole, NaN below it, and infinity and NaN as they are."""
    below = b.select(x.equals(pole), -math.inf, math.nan)
    return b.select(x > pole, b.select(x < math.inf, value, x), below)


def log(b: Lanes, x: Value) -> Value:
    return _special(b, x, _natural(b, *_split(b, x)))


def log2(b: Lanes, x: Value) -> Value:
    e, f = _split(b, x)
    return _special(b, x, e + b.multiply_add(f, b.polynomial(f, _LOG2), f))


def log10(b: Lanes, x: Value) -> Value:
    e, f = _split(b, x)
    rest = b.multiply_add(f, b.polynomial(f, _LOG10), e * _LOG10_2_LOW)
    near = b.multiply_add(f, 0.5, rest)
    return _special(b, x, b.multiply_add(e, _LOG10_2_HIGH, near))


def log1p(b: Lanes, x: Value) -> Value:
    """e is that of the rounded 1 + x; f = 2^-e x + (2^-e - 1) is exact for it."""
    exponent = _exponent(b, b.bits(x + 1.0))
    scale = exponent << 23
    # four times 2^-e: e goes to 128, and 2^-128 is denormal
    power = b.from_bits((ONE_BITS + (2 << 23)) - scale)
    f = b.from_bits(b.bits(x) - scale) + b.multiply_add(power, 0.25, -1.0)
    value = _natural(b, b.cast(exponent, "float"), f)
    return b.select(x.equals(0.0), x, _special(b, x, value, pole=-1.0))  # keeps -0.0


def _log_of_double(b: Lanes, w: Value) -> Value:
    """log(w) as float32, of a float64 that is positive and finite."""
    e, f = split_double(b, w)
    return _natural(b, b.cast(e, "float"), b.cast(f, "float"))


def asinh(b: Lanes, x: Value) -> Value:
    """log(a + sqrt(a^2 + 1)) with a = |x|, in float64 up to the logarithm; x where x^3 is too small to count."""
    a = b.absolute(x)
    d = b.cast(a, "double")
    value = _log_of_double(b, d + b.sqrt(b.multiply_add(d, d, 1.0)))
    ordinary = b.select(a < math.inf, value, a)
    return b.select(a < 2.0**-12, x, b.with_sign(ordinary, x))


def acosh(b: Lanes, x: Value) -> Value:
    """log(x + sqrt(x^2 - 1)), in float64 up to the logarithm; NaN below 1."""
    d = b.cast(x, "double")
    value = _log_of_double(b, d + b.sqrt(b.multiply_add(d, d, -1.0)))
    return b.select(x < 1.0, math.nan, b.select(x < math.inf, value, x))


def atanh(b: Lanes, x: Value) -> Value:
    """log((1 + a) / (1 - a)) / 2 with a = |x|, in float64 up to the logarithm; x where x^3 is too small to count."""
    a = b.absolute(x)
    d = b.cast(a, "double")
    ratio = (1.0 + d) / (1.0 - d)
    value = _log_of_double(b, ratio) * 0.5
    beyond = b.select(a.equals(1.0), math.inf, math.nan)
    ordinary = b.select(a < 1.0, value, beyond)
    return b.select(a < 2.0**-12, x, b.with_sign(ordinary, x))
