# SPDX-License-Identifier: Apache-2.0
"""Exponentials: 2^n times a polynomial of what is left, and the functions that are made of them."""

from __future__ import annotations

import math

from .lanes import Lanes, Value

# ln 2 in two parts, the first with so few bits that its products with integers up to 2^15 are exact
LN2_HIGH = 0.693359375
LN2_LOW = math.log(2) - LN2_HIGH  # exact: both are close

# (exp(r) - 1 - r) / r^2 on |r| <= 0.3505, for the relative error of exp(r) and of exp(r) - 1
_EXP = (0.4999999299473719, 0.16666513995833235, 0.041668466373962806, 0.008369513327476588, 0.0013812938646407013)
_EXPM1 = (0.5000000086455861, 0.1666666676268108, 0.04166622105432264, 0.008333283843478086, 0.0013949943617966155,
          0.0001990908475290838)  # fmt: skip
# (2^r - 1) / r on |r| <= 0.501
EXP2 = (0.6931472259363352, 0.24022651088803335, 0.05550296401643899, 0.009618029992565565, 0.0013410307764306596,
        0.00015469997548261307)  # fmt: skip
# (tanh(x) / x - 1) / x^2 in x^2, on |x| <= 0.625
_TANH = (-0.33333292551000043, 0.13331541957735954, -0.05373862424365642, 0.020615996170343324, -0.00566477536036609)
# (sinh(x) / x - 1) / x^2 in x^2, on |x| <= 1
_SINH = (0.16666666507561947, 0.008333350824695268, 0.00019835871448840712, 2.819028998301312e-06)


def _reduced(b: Lanes, x: Value) -> tuple[Value, Value, Value]:
    """(bits whose low ones are n, high, low) with x = n ln 2 + high + low and |high + low| <= 0.35; high is exact."""
    raised, n = b.rounded(x, 1 / math.log(2))
    high = b.multiply_add(n, -LN2_HIGH, x)
    low = n * -LN2_LOW
    return b.bits(raised), high, low


def _exp(b: Lanes, x: Value) -> tuple[Value, Value]:
    """(p, bits whose low ones are n) with exp(x) = p * 2^n, for |x| < 2^13."""
    bits, high, low = _reduced(b, x)
    r = high + low
    return 1.0 + b.multiply_add(r * r, b.polynomial(r, _EXP), r), bits


def exp(b: Lanes, x: Value) -> Value:
    return b.scaled(*_exp(b, b.at_least(b.at_most(x, 89.0), -104.0)))


def exp2(b: Lanes, x: Value) -> Value:
    x = b.at_least(b.at_most(x, 129.0), -151.0)
    raised, n = b.rounded(x)
    r = x - n
    p = b.multiply_add(r, b.polynomial(r, EXP2), 1.0)
    return b.scaled(p, b.bits(raised))


def expm1(b: Lanes, x: Value) -> Value:
    """2^n expm1(r) + (2^n - 1), halved until the end: 2^128 is no float32."""
    bits, high, low = _reduced(b, b.at_least(b.at_most(x, 89.0), -20.0))
    r = high + low
    small = high + b.multiply_add(r * r, b.polynomial(r, _EXPM1), low)
    power = b.power_of_two(bits, -1)
    half = b.multiply_add(power, small, power - 0.5)
    # where x^2 / 2 is too small to count, x itself: -0.0, and denormals, which lose a bit when halved
    return b.select(b.absolute(x) < 2.0**-24, x, half + half)


def sigmoid(b: Lanes, x: Value) -> Value:
    """1 / (1 + e) or e / (1 + e) with e = exp(-|x|), by the sign of x: accurate down to the denormals.

    Everything is times 2^64, so that e is no denormal. What the sum loses to rounding is taken off the dividend e,
    before that is rounded itself.
    """
    one = 2.0**64
    bits, high, low = _reduced(b, b.at_least(b.with_sign(x, -1.0), -104.0))
    r = high + low
    t = b.multiply_add(r * r, b.polynomial(r, _EXP), r)
    power = b.power_of_two(bits, 64)
    e = (1.0 + t) * power
    total = e + one
    lost = (total - one) - e
    over_total = b.multiply_add(e, -0.5 / one / one, 1.0 / one)  # 1 / (1 + e), roughly
    dividend = (1.0 + b.multiply_add(lost, over_total, t)) * power
    return b.select(x < 0.0, dividend, one) / total


def tanh(b: Lanes, x: Value) -> Value:
    """A polynomial for |x| < 0.625, else 1 - 2 / (exp(2|x|) + 1)."""
    a = b.absolute(x)
    u = a * a
    near = b.multiply_add(a * u, b.polynomial(u, _TANH), a)
    bounded = b.at_most(a, 10.0)
    p, n = _exp(b, bounded + bounded)
    far = 1.0 - 2.0 / (p * b.power_of_two(n) + 1.0)
    return b.with_sign(b.select(a < 0.625, near, far), x)


def _half_exp(b: Lanes, a: Value) -> Value:
    """exp(a) / 2 for a >= 0; infinity where cosh(a) is."""
    return b.scaled(*_exp(b, b.at_most(a, 91.0)), -1)


def cosh(b: Lanes, x: Value) -> Value:
    e = _half_exp(b, b.absolute(x))
    return e + 0.25 / e


def sinh(b: Lanes, x: Value) -> Value:
    a = b.absolute(x)
    u = a * a
    near = b.multiply_add(a * u, b.polynomial(u, _SINH), a)
    e = _half_exp(b, a)
    far = e - 0.25 / e
    return b.with_sign(b.select(a < 1.0, near, far), x)
