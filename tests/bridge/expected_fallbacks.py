# SPDX-License-Identifier: Apache-2.0
"""Ops that the programs of test_regressions_*.py are known to run in ATen, a reason each.

The programs must be right all the same. An op that is listed and no longer falls back fails the test: strike it out.
"""

#: Program -> op -> why it has no lowering.
FALLBACKS: dict[str, dict[str, str]] = {
    "factors_of_a_kernel_matrix": dict.fromkeys(
        ("aten.linalg_cholesky_ex.default", "aten.linalg_qr.default", "aten.cholesky_solve.default",
         "aten.linalg_inv_ex.default", "aten.linalg_solve_triangular.default", "aten._linalg_check_errors.default"),
        "LAPACK: nothing of it is generated",
    ),
    "a_window_of_an_expanded_input": dict.fromkeys(
        ("aten.as_strided.default", "aten.add.Tensor"), "a window of memory that enters the function as a copy"
    ),
}  # fmt: skip
