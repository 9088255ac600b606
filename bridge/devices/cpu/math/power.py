# SPDX-License-Identifier: Apache-2.0
"""Powers, by way of the base-2 logarithm in float64: x^y = 2^(y log2 x) needs 8 bits more than float32 has."""

from __future__ import annotations

import math

from .exponential import EXP2
from .lanes import Lanes, Value
from .logarithm import split_double

# log2(1 + f) / f on -0.2929 <= f <= 0.4143, to 2^-35.8: 150 times that is the error of the exponent
_LOG2 = (1.4426950408686885, -0.7213475208688743, 0.48089836140325354, -0.36067367477412543, 0.2885372928142073,
         -0.2404531690141462, 0.20617538135667557, -0.18030052455463746, 0.15876945506996434, -0.14315715768518408,
         0.14475102871552117, -0.14283718941918241, 0.07736330512895168)  # fmt: skip


def power_of_two(b: Lanes, z: Value, factor: Value | None = None) -> Value:
    """2^z times the factor, a float32 of float64 numbers: rounded once, and again only where it is denormal."""
    z = b.at_least(b.at_most(z, 129.0), -160.0)
    raised, n = b.rounded(z)
    r = z - n
    p = b.multiply_add(r, b.polynomial(r, EXP2), 1.0)
    mantissa = b.cast(p if factor is None else p * factor, "float")
    return b.scaled(mantissa, b.cast(b.bits(raised), "i32"))


def pow(b: Lanes, x: Value, y: Value) -> Value:
    """The special cases are C's: x^0 and 1^y are 1 even for NaN; a negative x has powers with integers only."""
    a = b.absolute(x)
    d = b.cast(a, "double")
    e, f = split_double(b, d)
    logarithm = b.multiply_add(f, b.polynomial(f, _LOG2), e)
    finite = b.select(a < math.inf, logarithm, d)
    logarithm = b.select(a.equals(0.0), -math.inf, finite)
    exponent = b.at_least(b.at_most(y, 2.0**100), -(2.0**100))  # 0 times infinity would be NaN, and (-1)^infinity is 1
    value = power_of_two(b, logarithm * b.cast(exponent, "double"))

    # Floats from 2^24 on are even integers; infinity counts as one.
    size = b.absolute(y)
    bounded = b.select(size < 2.0**24, size, 2.0**24)
    whole = b.cast(bounded, "i32")
    fraction = (bounded - b.cast(whole, "float")) > 0.0
    odd = b.select(fraction, 0, whole << 31)
    signed = b.from_bits(b.bits(value) ^ (b.bits(x) & odd))
    undefined = (x < 0.0) & (a < math.inf) & fraction
    defined = b.select(undefined, math.nan, signed)
    return b.select(y.equals(0.0), 1.0, b.select(x.equals(1.0), 1.0, defined))
