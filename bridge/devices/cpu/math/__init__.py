# SPDX-License-Identifier: Apache-2.0
"""Elementary functions of float32 on vectors of any width, at most 2 ulp from the exact value.

Each writes LLVM IR through `Lanes`; `..intrinsics` links it into the kernels that call it. The same formula serves one
element and sixteen, so that a result does not depend on where its element lies. No formula needs a fused multiply-add,
a rounding instruction or a call: they compile to straight code from SSE2 on.

How they are made: an argument is reduced to a short interval by steps that are exact or have an error far below one
ulp, and a polynomial does the rest. Coefficients are minimax ones (Remez' exchange in 50 digits) for the relative error
of the whole function, on the interval named beside them, rounded to the type they are used in. Where float32 has too
few bits for a step (powers, large angles, erfc's square) that step is in float64.
"""

from collections.abc import Callable

from . import error_function, exponential, logarithm, power, trigonometry
from .lanes import Lanes, Value

__all__ = ["FUNCTIONS", "Lanes"]

#: name -> (function of a builder and its arguments, how many arguments)
FUNCTIONS: dict[str, tuple[Callable[..., Value], int]] = {
    "acos": (trigonometry.acos, 1),
    "acosh": (logarithm.acosh, 1),
    "asin": (trigonometry.asin, 1),
    "asinh": (logarithm.asinh, 1),
    "atan": (trigonometry.atan, 1),
    "atanh": (logarithm.atanh, 1),
    "cos": (trigonometry.cos, 1),
    "cosh": (exponential.cosh, 1),
    "erf": (error_function.erf, 1),
    "erfc": (error_function.erfc, 1),
    "exp": (exponential.exp, 1),
    "exp2": (exponential.exp2, 1),
    "expm1": (exponential.expm1, 1),
    "log": (logarithm.log, 1),
    "log10": (logarithm.log10, 1),
    "log1p": (logarithm.log1p, 1),
    "log2": (logarithm.log2, 1),
    "pow": (power.pow, 2),
    "sigmoid": (exponential.sigmoid, 1),
    "sin": (trigonometry.sin, 1),
    "sinh": (exponential.sinh, 1),
    "tan": (trigonometry.tan, 1),
    "tanh": (exponential.tanh, 1),
}
