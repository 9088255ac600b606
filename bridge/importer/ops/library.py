"""Ops that go to a tuned ATen kernel on purpose: GEMM, convolution, attention, bags of embeddings.

Matrix products of float32 and float64 have converters of their own (ops/gemm.py). Linear algebra decompositions and FFT
are not here: they run in ATen for want of a lowering, and are reported as such.
"""

from __future__ import annotations

from ..registry import overload, register_library, registered

_GEMM = ("mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot", "addr", "linear", "matmul")
_GEMM_BASED = ("_trilinear", "linalg_matrix_exp")
_CONVOLUTION = ("convolution", "convolution_backward")
_ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
)
_BAGS = ("_embedding_bag", "_embedding_bag_backward", "_embedding_bag_per_sample_weights_backward")
_RAISES = ("_assert_async", "_assert_async.msg")  # run for the exception; they return nothing


for _name in (*_GEMM, *_GEMM_BASED, *_CONVOLUTION, *_ATTENTION, *_BAGS, *_RAISES):
    _op = overload(f"aten.{_name}" if "." in _name else f"aten.{_name}.default")
    if _op is not None and not registered(_op):
        register_library(_op)
