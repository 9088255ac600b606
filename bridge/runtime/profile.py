"""Where the time of compiled graphs goes: wall time by kernel, library call and ATen call."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..importer.translation import SITE_FUNCTION
from ..kinds import Kind
from .executable import Executable


@dataclass
class KernelTime:
    """What one kernel, or one op called through a call site, took; about 1 us of each call is the profiler."""

    graph: int  # GraphRecord.index
    name: str  # of the kernel; of a call site, the op
    kind: Kind
    calls: int = 0
    seconds: float = 0.0


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
            executable.instrument(_nothing)
            found += recorder.times.values()


def _nothing(*_: Any) -> int:
    return 0


class _Recorder:
    """The hook of one executable."""

    def __init__(self, executable: Executable):
        self.times: dict[str, KernelTime] = {}
        self._graph = executable.record.index
        self._kernels = executable.kernels
        self._sites = executable.plan.sites
        self._start = 0.0
        self._clock: Callable[[], float] = time.perf_counter

    def __call__(self, function: Any, name: str, before: bool, returned: Any, *args: Any) -> int:
        if before:
            self._start = self._clock()
            return 0
        seconds = self._clock() - self._start
        if name == SITE_FUNCTION:
            site = self._sites[int(args[0])]
            name, kind = str(site.target), site.kind
        elif name in self._kernels:
            kind = self._kernels[name]
        else:
            return 0
        entry = self.times.get(name)
        if entry is None:
            entry = self.times[name] = KernelTime(self._graph, name, kind)
        entry.calls += 1
        entry.seconds += seconds
        return 0
