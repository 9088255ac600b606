# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic that takes a loop: greatest common divisor, least common multiple, power."""

from __future__ import annotations

from tvm import tirx

from .pointwise import Expr, absolute, cast, dtype_of, number, trunc_div_int, trunc_mod_int
from .program import Program


def gcd(p: Program, a: Expr, b: Expr) -> Expr:
    """Euclid's algorithm; not negative (but for the smallest number, whose absolute value wraps)."""
    x, y = p.cell(absolute(a)), p.cell(absolute(b))
    with p.loop(tirx.NE(y.get(), number(0, dtype_of(a)))):
        rest = p.let(trunc_mod_int(x.get(), y.get()))
        x.set(y.get())
        y.set(rest)
    return x.get()


def lcm(p: Program, a: Expr, b: Expr) -> Expr:
    """Not negative before it is rounded to a type of 8 or 16 bits; 0 where either is."""
    narrow = dtype_of(a)
    dtype = narrow if narrow in ("int32", "int64") else "int32"
    zero, one = number(0, dtype), number(1, dtype)
    divisor = p.let(cast(gcd(p, a, b), dtype))
    none = tirx.EQ(divisor, zero)
    share = p.let(trunc_div_int(cast(a, dtype), tirx.Select(none, one, divisor)))
    return cast(tirx.Select(none, zero, absolute(share * cast(b, dtype))), narrow)


def power(p: Program, base: Expr, exponent: Expr) -> Expr:
    """Square and multiply, wrapping; a negative exponent gives 0 but for the bases 1 and -1."""
    dtype = dtype_of(base)
    zero, one, two = number(0, dtype), number(1, dtype), number(2, dtype)
    result, square, left = p.cell(one), p.cell(base), p.cell(exponent)
    with p.loop(left.get() > zero):
        with p.when(tirx.NE(tirx.bitwise_and(left.get(), one), zero)):
            result.set(result.get() * square.get())
        square.set(square.get() * square.get())
        left.set(tirx.shift_right(left.get(), one))
    if dtype.startswith("uint"):
        return result.get()
    odd = tirx.NE(trunc_mod_int(exponent, two), zero)
    minus_one = number(-1, dtype)
    unit = tirx.Select(tirx.EQ(base, one), one, zero)
    unit = tirx.Select(tirx.EQ(base, minus_one), tirx.Select(odd, minus_one, one), unit)
    return tirx.Select(exponent < zero, unit, result.get())
