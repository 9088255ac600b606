# SPDX-License-Identifier: Apache-2.0
"""Where a step's time goes, and how far that is from what the machine can do: a roofline.

Note [Share of the limit]
The limit of a step is the time of its library kernels (GEMM, convolution, attention, random numbers), as they ran,
plus the bytes of everything else over the bandwidth of a large copy: no arithmetic but the library's, no time between
kernels. `share` is that over the time of the step. Bytes are those of arguments and results, each once. A kernel whose
data lie in a cache, or that reads a few rows of a table, is faster than its bytes over the bandwidth; `share_capped`
counts no kernel for more than the time it took. The time of the step is the median of plain steps taken between the
profiled ones, that of a kernel its median over the profiled ones, so that a slow moment hits both.

Note [Memory-bound kernels]
A native kernel is memory-bound where its bytes take longer at the copy's bandwidth than its operations at the rate of
the machine's arithmetic instructions. That rate is half the GEMM's: an instruction of a matrix product is a product and
a sum. Operations are a lower bound (compile/flop_count.py), and few programs reach that rate, so kernels that are in
truth held up by arithmetic count as memory-bound rather than the other way round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.runtime.profile import KernelTime, profile_kernels

COPY_BYTES = 2**28  # of each of the two tensors; no cache holds it
GEMM_SIZE = 1024
NEAR = 0.8  # of the copy's bandwidth, from which a kernel counts as near it


def copy_rate() -> float:
    """Bytes a second, read and written together, of a copy out of cache, with the threads of this process."""
    source, target = torch.ones(COPY_BYTES // 4), torch.zeros(COPY_BYTES // 4)
    return 2 * COPY_BYTES / _fastest(lambda: target.copy_(source))


def gemm_rate() -> float:
    """Operations a second of a square float32 matrix product, with the threads of this process."""
    a, b = torch.randn(GEMM_SIZE, GEMM_SIZE), torch.randn(GEMM_SIZE, GEMM_SIZE)
    return 2 * GEMM_SIZE**3 / _fastest(lambda: torch.mm(a, b))


def _fastest(run: Callable[[], Any], times: int = 7) -> float:
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def profile_step(step: Callable[[], Any], steps: int) -> dict[str, Any]:
    """The profile of a compiled step, over `steps` profiled steps and as many plain ones, interleaved."""
    plain, profiles = [], []
    step()
    for _ in range(steps):
        start = time.perf_counter()
        step()
        plain.append(time.perf_counter() - start)
        with profile_kernels() as times:
            step()
        profiles.append(times)
    found = analyse(typical(profiles), statistics.median(plain), copy_rate(), gemm_rate())
    return {"steps": steps, "threads": torch.get_num_threads(), **found}


def typical(profiles: Sequence[Sequence[KernelTime]]) -> list[KernelTime]:
    """The kernels of one step, each with the median of its times over several."""
    seconds: dict[tuple[int, str], list[float]] = {}
    kernels: dict[tuple[int, str], KernelTime] = {}
    for times in profiles:
        for entry in times:
            key = entry.graph, entry.name
            kernels.setdefault(key, entry)
            seconds.setdefault(key, []).append(entry.seconds)
    return [replace(entry, seconds=statistics.median(seconds[key])) for key, entry in kernels.items()]


def analyse(times: Sequence[KernelTime], step: float, copy: float, gemm: float) -> dict[str, Any]:
    """The profile of one step that takes `step` seconds, as plain data; rates in bytes and operations a second."""
    rows = sorted((_row(t, copy, gemm) for t in times), key=lambda row: -row["seconds"])
    by_kind = {kind: _total([r for r in rows if r["kind"] == kind]) for kind in dict.fromkeys(r["kind"] for r in rows)}
    library = sum(r["seconds"] for r in rows if r["kind"] == Kind.LIBRARY)
    rest = [r for r in rows if r["kind"] != Kind.LIBRARY]
    at_copy_rate = sum(r["bytes"] for r in rest) / copy
    capped = sum(min(r["seconds"], r["bytes"] / copy) for r in rest)
    native = [r for r in rows if r["kind"] == Kind.NATIVE]
    native_seconds = sum(r["seconds"] for r in native)
    by_memory = [r for r in native if r["memory_bound"]]
    in_kernels = sum(r["seconds"] for r in rows)
    return {
        "step_seconds": step,
        "copy_rate": copy,
        "gemm_rate": gemm,
        "kernels": rows,
        "by_kind": by_kind,
        "outside_kernels": step - in_kernels,  # Python, Dynamo's guards, allocation; the profiler's 1 us a call less
        "limit_seconds": library + at_copy_rate,
        "share_of_limit": (library + at_copy_rate) / step,
        "share_of_limit_capped": (library + capped) / step,
        "native_share_of_copy": _weighted(native, copy) if native_seconds else None,
        "memory_bound_seconds": sum(r["seconds"] for r in by_memory),
        "memory_bound_share_of_copy": _weighted(by_memory, copy) if by_memory else None,
        "native_time_near_copy": (
            sum(r["seconds"] for r in native if r["bytes"] >= NEAR * copy * r["seconds"]) / native_seconds
            if native_seconds
            else None
        ),
    }


def _weighted(rows: list[dict[str, Any]], copy: float) -> float:
    """Share of the copy's bandwidth, no kernel counted above it, weighted by time."""
    seconds: float = sum(r["seconds"] for r in rows)
    return sum(min(r["seconds"], r["bytes"] / copy) for r in rows) / seconds


def _row(entry: KernelTime, copy: float, gemm: float) -> dict[str, Any]:
    seconds, size, flops = entry.seconds, entry.bytes, entry.flops
    return {
        "graph": entry.graph,
        "name": entry.name,
        "kind": entry.kind.value,
        "calls": entry.calls,
        "seconds": seconds,
        "bytes": size,
        "flops": flops,
        "share_of_copy": size / seconds / copy if seconds else None,
        "share_of_gemm": flops / seconds / gemm if flops and seconds else None,
        "operations": entry.operations,
        "memory_bound": None if entry.operations is None else size / copy >= entry.operations / (gemm / 2),
    }


def _total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    keys = ("calls", "seconds", "bytes", "flops")
    return {key: sum(row[key] for row in rows) for key in keys}
