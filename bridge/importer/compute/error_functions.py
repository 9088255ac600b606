# SPDX-License-Identifier: Apache-2.0
"""Relatives of the error function: its inverse, the quantile of the normal distribution, the scaled complement.

All in float64. Polynomials in a variable t of [-1, 1], constant first. Derivation of each table: interpolation at
Chebyshev nodes in 60 digits (mpmath's erfc and erfinv, Newton's iteration on log(erfc) for the tails) of the function
named beside it, with as many nodes as leave a relative error below 3e-18, written out in powers and rounded.
"""

from __future__ import annotations

import math

from tvm import tirx

from . import pointwise as pw
from .pointwise import Expr, number
from .program import Program

# erfinv(x) / x at x^2 = (t + 1) / 8
_ERFINV_CENTRE = (
    0.9174083670522701, 0.03356743029704948, 0.0026140273452605737, 0.0002522747551744839, 2.697700101020756e-05,
    3.063743625040001e-06, 3.6198641252228865e-07, 4.39827710829996e-08, 5.456543317613449e-09, 6.879478252422393e-10,
    8.785193915502063e-11, 1.1316245863143458e-11, 1.472932918049638e-12, 2.0671330379227348e-13,
    2.7293232550077864e-14,
)  # fmt: skip
# u / s with erfc(u) = exp(-s^2), s from 0.83 to 2.5
_ERFCINV_NEAR = (
    0.7910126947349244, 0.1276540859952171, -0.05861765575917932, 0.022951057365210484, -0.00774607207153528,
    0.0021357325044388605, -0.00037364003933443215, -5.150587121020135e-05, 9.180413632651765e-05,
    -5.684343872904326e-05, 2.6030552444432366e-05, -9.55815502962175e-06, 2.6532877111543943e-06,
    -3.401832903671103e-07, -2.0050334838347699e-07, 2.0766414999016104e-07, -1.2087780631448474e-07,
    5.410383110416906e-08, -1.8342738279626504e-08, 4.32151846815579e-09, -9.053690033340749e-10,
    -1.9475774071512493e-10, 8.618833281663419e-10, -5.58707402161857e-10, 7.87534551949307e-11,
    1.9391250863664565e-11,
)  # fmt: skip
# the same, s from 2.5 to 6.5
_ERFCINV_MIDDLE = (
    0.9480609104437537, 0.03549277674890988, -0.018974255307112775, 0.009187001728271452, -0.004203731637476825,
    0.0018498992957994293, -0.0007894768311493384, 0.0003280786454841486, -0.0001329736858094977,
    5.2557639261526884e-05, -2.0221080653880318e-05, 7.5442882532227735e-06, -2.7108683389982583e-06,
    9.269968722241144e-07, -2.9517107556720613e-07, 8.282973561235148e-08, -1.6485478218482165e-08,
    -2.186182745777522e-10, 1.7524948450326178e-09, -1.9274134582192697e-09, 2.387901602801099e-09,
    -1.1077899544834986e-09, -1.7598913320495443e-10, 3.0300311646823645e-11, 2.385099651758594e-10,
    -9.425539291733651e-11,
)  # fmt: skip
# the same, 1 / s from 1 / 28 to 1 / 6.5
_ERFCINV_FAR = (
    0.9867980129939989, -0.013691132868683774, -0.0025549491739279818, 0.0003492904307582008, -5.589027446959845e-05,
    1.4042879530024373e-05, -4.4126638269150895e-06, 1.5707869454865605e-06, -6.10918114820786e-07,
    2.535513032181835e-07, -1.1050319246979507e-07, 5.005482366953802e-08, -2.350050422280369e-08,
    1.1271510911195376e-08, -5.184583932860009e-09, 2.564245772039379e-09, -1.9637412399034356e-09,
    1.0373813678391303e-09, 3.736009167104195e-10, -2.2534925480796996e-10, -7.246750960315567e-10,
    4.0557356846831365e-10, 2.853916923182173e-10, -1.6140425030979847e-10, -8.699656285922937e-11,
    4.879301644167711e-11,
)  # fmt: skip
# exp(x^2) erfc(x) at x = t + 1
_ERFCX_NEAR = (
    0.427583576155807, -0.27321201478389856, 0.15437156137190858, -0.07922696894132679, 0.037572296215283754,
    -0.016661869090412656, 0.006970142375090882, -0.0027690647758762074, 0.001050269398508838, -0.0003819545277091378,
    0.0001336629815467615, -4.51439205786341e-05, 1.4753150124744093e-05, -4.675492704912898e-06,
    1.439728868761518e-06, -4.314587205214283e-07, 1.259329923541457e-07, -3.590842539856099e-08,
    1.0108303180958757e-08, -2.7519864789888906e-09, 6.655075760047144e-10, -1.7537424078575673e-10,
    7.131042359485654e-11, -1.7733587450660754e-11,
)  # fmt: skip
# the same at x = 3 t + 5
_ERFCX_MIDDLE = (
    0.11070463773306863, -0.06399836929447893, 0.036366200180433676, -0.020328213962536538, 0.011186296092925468,
    -0.006063793707591324, 0.0032399197408865188, -0.0017072420725810092, 0.0008876616436712027,
    -0.0004556120032043841, 0.0002309549608949856, -0.00011566971914966746, 5.7258062109320535e-05,
    -2.8024240915301293e-05, 1.3565948549445802e-05, -6.4965936959295215e-06, 3.079277228197086e-06,
    -1.4463551069905595e-06, 6.718923616548364e-07, -3.061351664620944e-07, 1.396937290463303e-07,
    -6.744995536406808e-08, 3.003551211550408e-08, -8.852297285364486e-09, 4.02350215093639e-09,
    -4.9841290128365816e-09, 2.0895158103184126e-09, 6.505979449952321e-10, -2.5613567447807486e-10,
    -3.346021520745175e-10, 1.3744078858173905e-10,
)  # fmt: skip
# x exp(x^2) erfc(x) at x^2 = 128 / (t + 1)
_ERFCX_FAR = (
    0.5620110534395629, -0.0021536728710360113, 2.4391475208977794e-05, -4.537195457600244e-07,
    1.1647720697683694e-08, -3.7909015207691385e-10, 1.487343475508068e-11, -6.804200429904268e-13,
    3.578064220898239e-14, -2.0891880918218986e-15,
)  # fmt: skip


def _f(value: float) -> Expr:
    return number(value, "float64")


def _on(p: Program, x: Expr, low: float, high: float, coefficients: tuple[float, ...]) -> Expr:
    """The polynomial at the point of [-1, 1] where `x` of [low, high] is mapped."""
    middle, half = (low + high) / 2, (high - low) / 2
    return p.polynomial(p.let((x - _f(middle)) * _f(1 / half)), coefficients)


def _inverse_centre(p: Program, x: Expr) -> Expr:
    """The x of erf for |x| <= 1/2."""
    return x * p.polynomial(p.let(_f(8) * x * x - _f(1)), _ERFINV_CENTRE)


def _inverse_complement(p: Program, q: Expr) -> Expr:
    """The u >= 0 with erfc(u) = q, for q of [0, 1/2]; infinite at 0."""
    s = p.let(tirx.sqrt(pw.negative(tirx.log(q))))
    return p.choose(
        [
            (s <= _f(2.5), lambda: s * _on(p, s, 0.83, 2.5, _ERFCINV_NEAR)),
            (s <= _f(6.5), lambda: s * _on(p, s, 2.5, 6.5, _ERFCINV_MIDDLE)),
            (s <= _f(28), lambda: s * _on(p, p.let(_f(1) / s), 1 / 28, 1 / 6.5, _ERFCINV_FAR)),
        ],
        lambda: s,
    )


def erfinv(p: Program, x: Expr) -> Expr:
    """NaN outside [-1, 1], infinite at its ends."""
    size = p.let(pw.absolute(x))

    def tail() -> Expr:
        return tirx.copysign(_inverse_complement(p, p.let(_f(1) - size)), x)

    return p.choose([(size <= _f(0.5), lambda: _inverse_centre(p, x)), (size <= _f(1), tail)], lambda: _f(math.nan))


def ndtri(p: Program, x: Expr) -> Expr:
    """The z at which the normal distribution has the probability `x`; NaN outside [0, 1], infinite at its ends."""
    root = _f(math.sqrt(2))
    outside = tirx.any(x < _f(0), x > _f(1), pw.isnan(x))
    return p.choose(
        [
            (outside, lambda: _f(math.nan)),
            (x < _f(0.25), lambda: pw.negative(root * _inverse_complement(p, p.let(x + x)))),
            (x > _f(0.75), lambda: root * _inverse_complement(p, p.let(_f(2) - (x + x)))),
        ],
        lambda: root * _inverse_centre(p, p.let(x + x - _f(1))),
    )


def erfcx(p: Program, x: Expr) -> Expr:
    """exp(x^2) erfc(x), by 2 exp(x^2) - erfcx(-x) for x < 0."""
    size = p.let(pw.absolute(x))
    value = p.choose(
        [
            (size <= _f(2), lambda: _on(p, size, 0, 2, _ERFCX_NEAR)),
            (size <= _f(8), lambda: _on(p, size, 2, 8, _ERFCX_MIDDLE)),
        ],
        lambda: p.polynomial(p.let(_f(128) / (size * size) - _f(1)), _ERFCX_FAR) / size,
    )
    return p.choose([(x < _f(0), lambda: _f(2) * tirx.exp(x * x) - value)], lambda: value)
