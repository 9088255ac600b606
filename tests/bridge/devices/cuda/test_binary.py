# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's compiler takes what TVM makes, where it is installed; its report is read without it."""

from __future__ import annotations

import pytest

from relaxgrad.bridge.devices.cuda import binary
from tests.expected_skips import Lacking, skip

REPORT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a_kernel' for 'sm_90'
ptxas info    : Function properties for a_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 1 barriers, 2052 bytes smem
ptxas info    : Compiling entry function 'b_kernel' for 'sm_90'
ptxas info    : Function properties for b_kernel
    40 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
"""
SOURCE = """
extern "C" __global__ void __launch_bounds__(64) twice(float* x) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[63 - threadIdx.x];
}
"""


def test_what_ptxas_reports_is_read_by_kernel() -> None:
    found = binary._usages(REPORT)
    assert found == {"a_kernel": binary.Usage(14, 0, 2052), "b_kernel": binary.Usage(255, 56, 0)}


def test_a_kernel_becomes_a_binary_with_its_usage() -> None:
    if binary.nvcc() is None:
        skip(Lacking.NVCC, "no nvcc on PATH")
    code, usage = binary.compile_cubin(SOURCE, "sm_90")
    assert code.startswith(b"\x7fELF")
    assert usage["twice"].shared == 256
    assert usage["twice"].registers > 0
    with pytest.raises(RuntimeError, match=r"nvcc -cubin -arch=sm_90 failed: .*error"):
        binary.compile_cubin(SOURCE.replace("s[63", "t[63"), "sm_90")


def test_without_nvcc_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "nvcc", lambda: None)
    with pytest.raises(FileNotFoundError, match="no nvcc on PATH"):
        binary.compile_cubin(SOURCE, "sm_90")
