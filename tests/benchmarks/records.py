# SPDX-License-Identifier: Apache-2.0
"""Records as a run leaves them, made without one."""

from __future__ import annotations

from typing import Any

from relaxgrad.benchmarks.record import CandidateRecord, ModelRecord, Start, Status, ratio_of, step_of


def model(name: str = "a-model", eager: float = 2.0, spread: float = 0.02, malloc: str = "system") -> dict[str, Any]:
    """A record in which relaxgrad takes 10 ms, eager `eager` times that, and Inductor does not compile.

    `spread`: how far eager's rounds stray, relative.
    """
    record = ModelRecord(name, malloc, parameters=10, protocol="forward; 1 thread")
    own = record.candidates["relaxgrad"] = CandidateRecord("relaxgrad", Status.TIMED)
    own.cold, own.warm = Start(6.0, 4.0, 1.0, 10**8), Start(2.0, 2.0, 0.25, 10**7)
    own.step = step_of([_round(0.010)] * 8)
    own.memory, own.graphs = 50_000_000, 1
    other = record.candidates["eager"] = CandidateRecord("eager", Status.TIMED)
    other.cold = Start(0.0, 0.1, None, 10**7)
    other.step = step_of([_round(0.010 * eager * (1 + spread * (i % 2 - 0.5))) for i in range(8)])
    other.memory = 40_000_000
    record.candidates["inductor"] = CandidateRecord("inductor", Status.FAILED, "no C++ compiler")
    record.ratios = {"eager": ratio_of(other.step, own.step)}
    return record.to_json()


def _round(seconds: float) -> dict[str, Any]:
    return {"seconds": [seconds, seconds], "cpu": 2 * seconds, "page_faults": 20}


PROFILE: dict[str, Any] = {
    "steps": 5,
    "threads": 1,
    "step_seconds": 0.010,
    "copy_rate": 1e10,
    "gemm_rate": 1e11,
    "kernels": [
        {
            "graph": 0, "name": "addmm", "kind": "library", "calls": 2, "seconds": 0.006, "bytes": 1e6,
            "flops": 4e8, "share_of_copy": 0.02, "share_of_gemm": 0.67,
        },
        {
            "graph": 1, "name": "fused_tanh", "kind": "native", "calls": 1, "seconds": 0.002, "bytes": 1.8e7,
            "flops": 0, "share_of_copy": 0.9, "share_of_gemm": None, "operations": 10**6, "memory_bound": True,
        },
    ],
    "by_kind": {
        "library": {"calls": 2, "seconds": 0.006, "bytes": 1e6, "flops": 4e8},
        "native": {"calls": 1, "seconds": 0.002, "bytes": 1.8e7, "flops": 0},
    },
    "outside_kernels": 0.002,
    "limit_seconds": 0.0078,
    "share_of_limit": 0.78,
    "share_of_limit_capped": 0.78,
    "native_share_of_copy": 0.9,
    "native_time_near_copy": 1.0,
    "memory_bound_seconds": 0.002,
    "memory_bound_share_of_copy": 0.9,
}  # fmt: skip
