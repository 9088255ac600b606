"""Ops that go to a tuned ATen kernel on purpose: GEMM, convolution, attention."""

from __future__ import annotations

from ..registry import overload, register_library

_GEMM = ("mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot", "addr", "linear", "matmul")
_CONVOLUTION = ("convolution", "convolution_backward")
_ATTENTION = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
)

for _name in (*_GEMM, *_CONVOLUTION, *_ATTENTION):
    if (_op := overload(f"aten.{_name}.default")) is not None:
        register_library(_op)
