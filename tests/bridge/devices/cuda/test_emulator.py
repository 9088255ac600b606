# SPDX-License-Identifier: Apache-2.0
"""The emulator notices what is wrong with a kernel: each fault beside the right kernel, which passes."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.bridge.devices.cuda import emulator

SUM = """
extern "C" __global__ void __launch_bounds__(64) total(float* __restrict__ out, float* __restrict__ x) {
  __shared__ float part[64];
  float own[2];
  own[0] = x[((int)blockIdx.x) * 128 + ((int)threadIdx.x) * 2];
  own[1] = x[((int)blockIdx.x) * 128 + ((int)threadIdx.x) * 2 + 1];
  part[((int)threadIdx.x)] = own[0] + own[1];
  __syncthreads();
  if (((int)threadIdx.x) < 32) {
    float v = part[((int)threadIdx.x)] + part[((int)threadIdx.x) + 32];
    uint mask = __activemask();
    v = v + __shfl_down_sync(mask, v, 16, 32);
    v = v + __shfl_down_sync(mask, v, 8, 32);
    v = v + __shfl_down_sync(mask, v, 4, 32);
    v = v + __shfl_down_sync(mask, v, 2, 32);
    v = v + __shfl_down_sync(mask, v, 1, 32);
    if (((int)threadIdx.x) == 0) {
      out[((int)blockIdx.x)] = v;
    }
  }
}
"""
SCALE = """
extern "C" __global__ void __launch_bounds__(64) scale(float* __restrict__ out, float* __restrict__ x, int64_t n) {
  if (((int)blockIdx.x) * 64 + ((int)threadIdx.x) < n) {
    out[((int)blockIdx.x) * 64 + ((int)threadIdx.x)] = x[((int)blockIdx.x) * 64 + ((int)threadIdx.x)] * 2.0f;
  }
}
"""
VECTORS = """
extern "C" __global__ void __launch_bounds__(64) copy(float* __restrict__ out, float* __restrict__ x) {
  *(float4*)(out + (((int)threadIdx.x) * 4)) = *(float4*)(x + (((int)threadIdx.x) * 4));
}
"""
HEAD = "#define uint unsigned int\n"


class _Value(ctypes.Union):
    _fields_ = (("number", ctypes.c_int64), ("pointer", ctypes.c_void_p))


class _Any(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("size", ctypes.c_uint32), ("value", _Value))


Launch = Callable[..., str]


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Runs a kernel of a source: the emulator's message, empty where it has nothing to say."""

    def run(source: str, *args: np.ndarray | int, grid: int, threads: int) -> str:
        library = emulator._library()
        (name,) = set(re.findall(r"(\w+)\(float\* ", source))
        made = emulator.compile_source(HEAD + source, {name: ["blockIdx.x", "threadIdx.x"]}, {})
        shared = tmp_path / f"{made.stem}.so"
        subprocess.run(["g++", "-shared", str(made), "-o", str(shared)], check=True)
        kernel = getattr(ctypes.CDLL(str(shared)), f"__tvm_ffi_{name}")
        given = (_Any * (len(args) + 2))()
        for k, arg in enumerate([*args, grid, threads]):
            if isinstance(arg, np.ndarray):
                library.emulator_register(ctypes.c_void_p(arg.ctypes.data), ctypes.c_int64(arg.nbytes))
                given[k] = _Any(4, 0, _Value(pointer=arg.ctypes.data))
            else:
                given[k] = _Any(1, 0, _Value(number=arg))
        library.emulator_message.restype = ctypes.c_char_p
        failed = kernel(None, given, len(given), None)
        return library.emulator_message().decode() if failed else ""

    return run


def _changed(source: str, old: str, new: str, count: int = -1) -> str:
    changed = source.replace(old, new, count)
    assert changed != source
    return changed


def _aligned(count: int) -> np.ndarray:
    """float32 that begins at a multiple of 64 bytes."""
    memory = np.zeros(count + 16, dtype=np.float32)
    return memory[(-memory.ctypes.data % 64) // 4 :][:count]


def test_right_kernels_pass(launch: Launch) -> None:
    x = np.random.default_rng(0).integers(-8, 8, 3 * 128).astype(np.float32)
    out = np.full(3, np.nan, dtype=np.float32)
    assert launch(SUM, out, x, grid=3, threads=64) == ""
    assert out.tolist() == x.reshape(3, 128).sum(1).tolist()
    assert out.any()
    twice = np.full(100, np.nan, dtype=np.float32)
    assert launch(SCALE, twice, x[:100].copy(), 100, grid=2, threads=64) == ""
    assert twice.tolist() == (2 * x[:100]).tolist()
    source, target = _aligned(256), _aligned(256)
    source[:] = x[:256]
    assert launch(VECTORS, target, source, grid=1, threads=64) == ""
    assert target.tolist() == source.tolist()


FAULTS = {
    "a missing barrier": (SUM, ("  __syncthreads();\n", ""), "uninitialised|race"),
    "a barrier in a branch": (
        SUM,
        ("__syncthreads();", "if (((int)threadIdx.x) < 32) { __syncthreads(); }"),
        "divergent",
    ),
    "barriers in two branches": (
        SUM,
        ("__syncthreads();", "if (((int)threadIdx.x) < 32) {\n __syncthreads();\n } else {\n __syncthreads();\n }"),
        "divergent",
    ),
    "all lanes in a mask, some of which are not there": (
        _changed(SUM, "__activemask()", "0xffffffffu"),
        ("< 32) {\n    float v", "< 24) {\n    float v"),
        "divergent",
    ),
    "shared memory that nothing wrote": (
        SUM,
        (
            "part[((int)threadIdx.x)] = own[0] + own[1];",
            "if (((int)threadIdx.x) < 60) { part[((int)threadIdx.x)] = own[0]; }",
        ),
        "uninitialised",
    ),
    "an index one too far": (SUM, ("* 2 + 1];", "* 2 + 2];"), "out of bounds"),
    "an index into shared memory one too far": (
        SUM,
        ("part[((int)threadIdx.x)] = own", "part[((int)threadIdx.x) + 1] = own"),
        "out of bounds",
    ),
    "an index into a thread's own array": (SUM, ("own[1] = x", "own[2] = x"), "out of bounds"),
    "every block writes one result": (SUM, ("out[((int)blockIdx.x)] = v", "out[0] = v"), "race"),
    "every thread writes one result": (SUM, ("    if (((int)threadIdx.x) == 0) {", "    if (true) {"), "race"),
    "no mask at the tail": (
        SCALE,
        ("if (((int)blockIdx.x) * 64 + ((int)threadIdx.x) < n)", "if (true)"),
        "out of bounds",
    ),
    "a mask one too far": (SCALE, ("< n)", "<= n)"), "out of bounds"),
    "a neighbour is read in place": (
        SCALE,
        (
            "= x[((int)blockIdx.x) * 64 + ((int)threadIdx.x)] * 2.0f",
            "= out[(((int)blockIdx.x) * 64 + ((int)threadIdx.x) + 1) % n] * 2.0f",
        ),
        "race",
    ),
    "more threads than compiled for": (SCALE, ("__launch_bounds__(64)", "__launch_bounds__(32)"), "launch"),
    "a vector that is not aligned": (
        VECTORS,
        ("(x + (((int)threadIdx.x) * 4))", "(x + (((int)threadIdx.x) * 3 + 1))"),
        "misaligned",
    ),
    "a check that fails": (SCALE, ("    out[", "    if (n == 100) { __trap(); }\n    out["), "assert"),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_planted_fault_is_noticed(launch: Launch, fault: str) -> None:
    source, (old, new), kind = FAULTS[fault]
    memory = _aligned(400), _aligned(400)
    if source is VECTORS:
        args: Sequence[np.ndarray | int] = (memory[0][:256], memory[1][:256])
        grid = 1
    elif "total" in source:
        args, grid = (memory[0][:3], memory[1][: 3 * 128]), 3
    else:
        args, grid = (memory[0][:100], memory[1][:100], 100), 2
    assert launch(source, *args, grid=grid, threads=64) == ""
    message = launch(_changed(source, old, new), *args, grid=grid, threads=64)
    assert re.match(kind, message), message


def test_a_grid_of_no_blocks_is_refused(launch: Launch) -> None:
    out = np.zeros(4, dtype=np.float32)
    assert launch(SCALE, out, out.copy(), 4, grid=0, threads=64).startswith("launch")


def test_a_sum_over_too_few_lanes_is_a_wrong_number(launch: Launch) -> None:
    x, out = np.arange(128, dtype=np.float32), np.zeros(1, dtype=np.float32)
    assert launch(_changed(SUM, "v, 4, 32)", "v, 3, 32)"), out, x, grid=1, threads=64) == ""
    assert out[0] != x.sum()
