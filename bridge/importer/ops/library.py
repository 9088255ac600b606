# SPDX-License-Identifier: Apache-2.0
"""Ops that go to a tuned ATen kernel on purpose: GEMM, convolution, bags of embeddings.

A device has implementations of its own for some of them, and for ops that only it has. Linear algebra decompositions
and FFT are not here: they run in ATen for want of a lowering, and are reported as such.
"""

from __future__ import annotations

from ..registry import overload, register_library, registered

_GEMM = ("mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot", "addr", "linear", "matmul")
_GEMM_BASED = ("_trilinear", "linalg_matrix_exp")
_CONVOLUTION = ("convolution", "convolution_backward")
_BAGS = ("_embedding_bag", "_embedding_bag_per_sample_weights_backward")
_RAISES = ("_assert_async", "_assert_async.msg")  # run for the exception; they return nothing


for _name in (*_GEMM, *_GEMM_BASED, *_CONVOLUTION, *_BAGS, *_RAISES):
    _op = overload(f"aten.{_name}" if "." in _name else f"aten.{_name}.default")
    if _op is not None and not registered(_op):
        register_library(_op)
