# SPDX-License-Identifier: Apache-2.0
"""The error function and its complement."""

from __future__ import annotations

import math

from .exponential import EXP2
from .lanes import Lanes, Value
from .power import power_of_two

# erf(x) / x - 1 in x^2, on |x| <= 1
_ERF = (0.12837916572649022, -0.37612625823320894, 0.1128358514216407, -0.026853811732169153, 0.005188327358011091,
        -0.0008010190998951586, 7.853853128515676e-05)  # fmt: skip
# log2(erfc(x)) on 1 <= x <= 4, for the error of 1 - erfc(x)
_LOG2_ERFC = (-0.0003275849291977352, -1.6271325770359537, -0.917899171817463, -0.15233313406120566,
              0.034141658847925825, -0.005358644448942409, 0.0005153528055025803, -2.2596142658960327e-05)  # fmt: skip
# erfc(x) exp(x^2) in (x - 3) / (x + 3), on 0 <= x <= 10.1, in float64
_SCALED_ERFC = (0.1790011512601347, -0.32623356382348867, 0.24560379806365107, -0.15011578171127749,
                0.07166585585493176, -0.02439423807489082, 0.004268919291885385, 0.0007157865215169513,
                -0.0005946263644998766, 2.8757478680286407e-05, 5.586366344599852e-05)  # fmt: skip


def erf(b: Lanes, x: Value) -> Value:
    """A polynomial for |x| < 1, else 1 - 2^(another), which is 1 from 4 on."""
    a = b.absolute(x)
    u = a * a
    near = b.multiply_add(a, b.polynomial(u, _ERF), a)
    q = b.polynomial(b.at_most(a, 4.0), _LOG2_ERFC)
    raised, n = b.rounded(q)
    r = q - n
    far = 1.0 - b.multiply_add(r, b.polynomial(r, EXP2), 1.0) * b.power_of_two(b.bits(raised))
    return b.with_sign(b.select(a < 1.0, near, far), x)


def erfc(b: Lanes, x: Value) -> Value:
    """exp(-a^2) times a polynomial with a = |x|, in float64; from 2 for negative x."""
    d = b.cast(b.at_most(b.absolute(x), 11.0), "double")
    t = (d - 3.0) / (d + 3.0)
    exponent = d * d * (-1 / math.log(2))
    value = power_of_two(b, exponent, b.polynomial(t, _SCALED_ERFC))
    return b.select(x < 0.0, 2.0 - value, value)
