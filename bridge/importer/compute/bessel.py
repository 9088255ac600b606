# SPDX-License-Identifier: Apache-2.0
"""Modified Bessel functions of both kinds, orders 0 and 1, plain and scaled by exp(-|x|) and exp(x).

Polynomials in a variable of [-1, 1], constant first. Derivation of each table: interpolation at Chebyshev nodes in 60
digits (mpmath's besseli and besselk) of the function named beside it, with as many nodes as leave an error below 3e-17,
written out in powers and rounded; evaluated in float64 they are good to 6e-16.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import tirx

from . import pointwise as pw
from .pointwise import Expr, cast, number
from .program import Program

# exp(-x) I0(x) at x = 4 (t + 1)
_I0E_LOW = (
    0.2070019212239867, -0.11300432688620549, 0.09451562853995128, -0.08904344136075963, 0.08734341617550435,
    -0.08496338091616289, 0.07927522590771639, -0.06954119561719706, 0.056777032011386216, -0.04298594945476025,
    0.030177912102218134, -0.019682654690840354, 0.011960077426792047, -0.006792399871927492, 0.0036171284436899067,
    -0.0018118867976067608, 0.0008563094235043086, -0.0003829020871854531, 0.00016241773604398465,
    -6.55086273259746e-05, 2.518366139612992e-05, -9.251665226971573e-06, 3.249540060602951e-06,
    -1.0883515439592516e-06, 3.523604963439924e-07, -1.1383482679942732e-07, 3.385378043608712e-08,
    -7.725039968045779e-09, 2.2221132168174095e-09, -1.1849657986148584e-09, 2.997850940661288e-10,
)  # fmt: skip
# sqrt(x) exp(-x) I0(x) at x = 16 / (t + 1)
_I0E_HIGH = (
    0.4021765094450081, 0.0033605519836678844, 0.00013621607439240856, 1.1143033788559087e-05, 1.4838475391383468e-06,
    2.9735993216471474e-07, 8.872278303607728e-08, 3.9324793517123454e-08, 2.1541699603632043e-08,
    7.563107589679047e-09, -6.7023325619894366e-09, -1.3450608319883882e-08, -5.6022211783247e-09,
    7.687473295440412e-09, 8.006764881281122e-09, -3.799241020140616e-09, -7.1046429701883025e-09,
    1.9518431205146255e-09, 5.2159872385826355e-09, -9.961827005971165e-10, -3.0791787996480336e-09,
    4.1991218209463363e-10, 1.3291938884143105e-09, -1.1746991110551324e-10, -3.6353603909526465e-10,
    1.556423962829591e-11, 4.655655751294525e-11,
)  # fmt: skip
# exp(-x) I1(x) / x at x = 4 (t + 1)
_I1E_LOW = (
    0.044687709875608835, -0.06112433802966629, 0.0680575999095116, -0.0684826062058255, 0.0637674037134072,
    -0.05528003922705058, 0.044674572621255064, -0.03367135551994034, 0.023686016957724227, -0.01557130925657511,
    0.00958396215077406, -0.005534567760544582, 0.003005762419557192, -0.0015388749636515487, 0.000744512345281566,
    -0.0003411747437353928, 0.00014842124144631648, -6.142651349494123e-05, 2.4233756432468166e-05,
    -9.131846315273642e-06, 3.2938951625746042e-06, -1.1380759138279984e-06, 3.759400376008922e-07,
    -1.2000364861910367e-07, 3.8028049651067336e-08, -1.1191257727176943e-08, 2.6037822441041467e-09,
    -7.379291130374042e-10, 3.727630409237771e-10, -9.365751909742237e-11,
)  # fmt: skip
# sqrt(x) exp(-x) I1(x) at x = 16 / (t + 1)
_I1E_HIGH = (
    0.38939845902587233, -0.009749577193235758, -0.00021923576383438729, -1.5038547198351201e-05,
    -1.8349101048965518e-06, -3.483856445811428e-07, -1.000134929730233e-07, -4.312819645562664e-08,
    -2.336697227282623e-08, -8.435630024967513e-09, 6.687257309165881e-09, 1.4073201407347145e-08,
    6.180080050252965e-09, -7.768471997806944e-09, -8.488549054437278e-09, 3.7003762012994875e-09,
    7.441519822394391e-09, -1.842354234931444e-09, -5.438072168110142e-09, 9.265252428334351e-10,
    3.2055586346236238e-09, -3.8986710944632543e-10, -1.3834389708637022e-09, 1.0940884042721056e-10,
    3.784510012514866e-10, -1.4553819054184817e-11, -4.848238653363404e-11,
)  # fmt: skip
# K0(x) + log(x / 2) I0(x) at x^2 = 2 (t + 1)
_K0_LOW = (
    -0.30362077291575545, 0.3404973210133806, 0.07177701034240509, 0.005053392643196092, 0.0001828055582791554,
    4.0545066199495615e-06, 6.093361894172149e-08, 6.623013277190278e-10, 5.4525646625978115e-12,
    3.518611978846953e-14,
)  # fmt: skip
# sqrt(x) exp(x) K0(x) at x = 4 / (t + 1)
_K0_HIGH = (
    1.2185953385133905, -0.031071461824889523, 0.0030328918102739454, -0.0004797690567658713, 9.956054748575022e-05,
    -2.473520457096165e-05, 7.0022444255986085e-06, -2.191177672686996e-06, 7.427918745301117e-07,
    -2.6890740183537945e-07, 1.028875394812628e-07, -4.133603551539714e-08, 1.7288102250486044e-08,
    -7.294807830568568e-09, 3.237899704197692e-09, -1.9163886235149194e-09, 9.50126795470238e-10,
    1.6249121403085222e-10, -1.2974622316235225e-10, -5.425392268826551e-10, 3.1302580587365775e-10,
    2.1672329094976382e-10, -1.286822465377347e-10, -6.82912231113288e-11, 3.96355256263508e-11,
)  # fmt: skip
# x (K1(x) - log(x / 2) I1(x)) at x^2 = 2 (t + 1)
_K1_LOW = (
    0.8850882877295894, -0.3322409552403131, -0.2438385288677433, -0.027854235219771845, -0.001383168846618116,
    -3.891869064370918e-05, -7.081133691517491e-07, -9.032127511269602e-09, -8.53363416816121e-11,
    -6.21422926654518e-13,
)  # fmt: skip
# sqrt(x) exp(x) K1(x) at x = 4 / (t + 1)
_K1_HIGH = (
    1.363151890371342, 0.10334973775386523, -0.005566729880073094, 0.0007357241549077615, -0.00013959021963384766,
    3.284386556850026e-05, -8.961206061895131e-06, 2.730041309124799e-06, -9.067215327593673e-07,
    3.229820302740851e-07, -1.219592991740941e-07, 4.84585048883485e-08, -2.0078990564218355e-08,
    8.418479670972575e-09, -3.7119962979184724e-09, 2.1600738070102857e-09, -1.064142272258912e-09,
    -1.6214964652946646e-10, 1.3403129134884593e-10, 5.917703107429806e-10, -3.4052380863530667e-10,
    -2.3491838521262873e-10, 1.392647707395567e-10, 7.437054315558186e-11, -4.3071978473211124e-11,
)  # fmt: skip


def _scaled(p: Program, size: Expr, low: tuple[float, ...], high: tuple[float, ...]) -> tuple[Expr, Expr, Expr]:
    """(whether size <= 8, the polynomial there, the one beyond) in the dtype of `size`, computed in float64."""
    dtype = pw.dtype_of(size)
    wide = p.let(cast(size, "float64"))
    one = number(1, "float64")
    near = p.polynomial(p.let(wide * number(0.25, "float64") - one), low)
    far = p.polynomial(p.let(number(16, "float64") / wide - one), high)
    return size <= number(8, dtype), p.let(cast(near, dtype)), p.let(cast(far, dtype))


def i0e(p: Program, x: Expr) -> Expr:
    size = p.let(pw.absolute(x))
    near, low, high = _scaled(p, size, _I0E_LOW, _I0E_HIGH)
    return tirx.Select(near, low, high / tirx.sqrt(size))


def i0(p: Program, x: Expr) -> Expr:
    """NaN at infinity and infinite where exp(|x|) is, a little before the function itself: as ATen has it."""
    size = p.let(pw.absolute(x))
    near, low, high = _scaled(p, size, _I0E_LOW, _I0E_HIGH)
    power = p.let(tirx.exp(size))
    return tirx.Select(near, power * low, power * high / tirx.sqrt(size))


def i1e(p: Program, x: Expr) -> Expr:
    size = p.let(pw.absolute(x))
    near, low, high = _scaled(p, size, _I1E_LOW, _I1E_HIGH)
    return tirx.copysign(tirx.Select(near, low * size, high / tirx.sqrt(size)), x)


def i1(p: Program, x: Expr) -> Expr:
    """NaN at infinity, as i0."""
    size = p.let(pw.absolute(x))
    near, low, high = _scaled(p, size, _I1E_LOW, _I1E_HIGH)
    power = p.let(tirx.exp(size))
    value = tirx.Select(near, power * size * low, power * high / tirx.sqrt(size))
    return tirx.copysign(value, x)


def _f(value: float) -> Expr:
    return number(value, "float64")


def second_kind(order: int, scaled: bool) -> Callable[[Program, Expr], Expr]:
    """K of `order` 0 or 1 over float64, `scaled` by exp(x); infinite at zero, NaN below."""

    def compute(p: Program, x: Expr) -> Expr:
        def low() -> Expr:
            rest = p.polynomial(p.let(x * x * _f(0.5) - _f(1)), _K1_LOW if order else _K0_LOW)
            first = p.polynomial(p.let(x * _f(0.25) - _f(1)), _I1E_LOW if order else _I0E_LOW)
            power = p.let(tirx.exp(x))
            product = p.let(tirx.log(x * _f(0.5)) * power * first)
            value = rest / x + product * x if order else rest - product
            return value * power if scaled else value

        def high() -> Expr:
            value = p.polynomial(p.let(_f(4) / x - _f(1)), _K1_HIGH if order else _K0_HIGH) / tirx.sqrt(x)
            return value if scaled else value * tirx.exp(pw.negative(x))

        return p.choose([(tirx.EQ(x, _f(0)), lambda: _f(math.inf)), (x <= _f(2), low)], high)

    return compute


def spherical_j0(p: Program, x: Expr) -> Expr:
    """sin(x) / x over float64: 1 at zero, 0 at infinity."""
    return p.choose([(tirx.EQ(x, _f(0)), lambda: _f(1)), (pw.isinf(x), lambda: _f(0))], lambda: tirx.sin(x) / x)
