"""Ops that go to a tuned ATen kernel on purpose: GEMM, convolution, attention, LAPACK, FFT, bags of embeddings."""

from __future__ import annotations

from ..registry import overload, register_library

_GEMM = ("mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot", "addr", "linear", "matmul")
_GEMM_BASED = ("_trilinear", "linalg_matrix_exp")
_CONVOLUTION = ("convolution", "convolution_backward")
_ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
)
_LAPACK = (
    "_linalg_det", "_linalg_eigh", "_linalg_eigvals", "_linalg_slogdet", "_linalg_solve_ex", "_linalg_svd",
    "cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "linalg_cholesky_ex", "linalg_eig", "linalg_eigvals",
    "linalg_householder_product", "linalg_inv_ex", "linalg_ldl_factor_ex", "linalg_ldl_solve", "linalg_lstsq",
    "linalg_lu", "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_pinv.atol_rtol_tensor", "linalg_qr",
    "linalg_solve_triangular", "lu_unpack", "ormqr", "triangular_solve",
)  # fmt: skip
_FFT = ("_fft_c2c", "_fft_c2r", "_fft_r2c")
_BAGS = ("_embedding_bag", "_embedding_bag_backward", "_embedding_bag_per_sample_weights_backward")
_RAISES = ("_assert_async", "_assert_async.msg")  # run for the exception; they return nothing


for _name in (*_GEMM, *_GEMM_BASED, *_CONVOLUTION, *_ATTENTION, *_LAPACK, *_FFT, *_BAGS, *_RAISES):
    if (_op := overload(f"aten.{_name}" if "." in _name else f"aten.{_name}.default")) is not None:
        register_library(_op)
