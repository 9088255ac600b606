# SPDX-License-Identifier: Apache-2.0
"""The simplifier takes x != x to be false for floats

`x != x` is the test for NaN. tvm.sym.Analyzer (and every pass that simplifies) compares both sides as members of a
field, so the test is never true. Rewrite comparisons of equal operands for integers only.
"""

import tvm
from tvm import tirx

x = tirx.Var("x", "float32")
print("expected: x != x")
print("seen:", tvm.sym.Analyzer().simplify(tirx.NE(x, x)))
