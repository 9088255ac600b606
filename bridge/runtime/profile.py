# SPDX-License-Identifier: Apache-2.0
"""Where the time of compiled graphs goes: wall time, bytes and operations by kernel, library call and ATen call."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .. import torch_api
from ..kinds import Kind
from ..plan import EXTERN_FUNCTION
from .executable import Executable
from .flops import bytes_of, extern_flops, product_flops


@dataclass
class KernelTime:
    """What one kernel, or one op called through an extern call, took; about 1 us of each call is the profiler."""

    graph: int  # GraphRecord.index
    name: str  # of the kernel; of an extern call, the op
    kind: Kind
    calls: int = 0
    seconds: float = 0.0
    bytes: int = 0  # of arguments and results, each once, what is written in place twice; see flops.py
    flops: int = 0  # of matrix products, convolutions and attention; 0 where the shapes do not tell
    operations: int | None = None  # of a native kernel, see compile/flop_count.py; None where they are not known


@contextlib.contextmanager
def profile_kernels() -> Iterator[list[KernelTime]]:
    """A list that is filled, at the end of the context, with the time of each kernel that ran in this thread.

    Covers the graphs that are compiled when the context opens. What the machine itself does (allocation, shapes) is
    left out: it is the difference to the time of the whole step.
    """
    found: list[KernelTime] = []
    graphs = list(Executable.live)
    recorders = [(executable, _Recorder(executable)) for executable in graphs]
    for executable, recorder in recorders:
        executable.instrument(recorder)
    try:
        yield found
    finally:
        for executable, recorder in recorders:
            executable.instrument(None)
            found += recorder.times.values()


def _name_of(target: Any) -> str:
    """An op's own name; a function's without its address."""
    return str(target) if isinstance(target, torch_api.OpOverload) else getattr(target, "__name__", str(target))


class _Recorder:
    """The hook of one executable."""

    def __init__(self, executable: Executable):
        self.times: dict[str, KernelTime] = {}
        self._graph = executable.record.index
        self._kernels = executable.kernels
        self._extern_calls = executable.plan.extern_calls
        self._extern_flops: dict[
            tuple[Any, ...], int
        ] = {}  # by call and shapes: a formula takes longer than most calls
        self._start = 0.0
        self._clock: Callable[[], float] = time.perf_counter

    def __call__(self, function: Any, name: str, before: bool, returned: Any, *args: Any) -> int:
        if before:
            self._start = self._clock()
            return 0
        seconds = self._clock() - self._start
        flops, operations = 0, None
        if name == EXTERN_FUNCTION:
            call = self._extern_calls[int(args[0])]
            tensors = args[1:]
            name, kind = _name_of(call.target), call.kind
            size = bytes_of(tensors) + bytes_of(returned)
            flops = self._flops_of_call(int(args[0]), tensors)
        elif name in self._kernels:
            kernel = self._kernels[name]
            kind, size = kernel.kind, bytes_of(args) + bytes_of([args[number] for number in kernel.overwrites])
            if kind is Kind.LIBRARY:
                flops = product_flops([a.shape for a in args if hasattr(a, "shape")])
            else:
                operations = kernel.operations
        else:
            return 0
        entry = self.times.get(name)
        if entry is None:
            entry = self.times[name] = KernelTime(self._graph, name, kind)
        entry.calls += 1
        entry.seconds += seconds
        entry.bytes += size
        entry.flops += flops
        if operations is not None:
            entry.operations = (entry.operations or 0) + operations
        return 0

    def _flops_of_call(self, number: int, tensors: tuple[Any, ...]) -> int:
        key = (number, *(tuple(t.shape) for t in tensors if hasattr(t, "shape")))
        if key not in self._extern_flops:
            self._extern_flops[key] = extern_flops(self._extern_calls[number], tensors)
        return self._extern_flops[key]
