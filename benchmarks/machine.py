# SPDX-License-Identifier: Apache-2.0
"""The machine that was measured on: what must be the same for two runs to be compared."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from typing import Any

from relaxgrad.bridge.devices.cpu.host import cpuinfo, cpuinfo_flags
from relaxgrad.bridge.forked import cores

# Of /proc/cpuinfo: what decides which kernels a library or a compiler picks.
_VECTOR_FLAGS = ("sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni", "amx_tile", "amx_bf16", "amx_int8")


@dataclass(frozen=True)
class Machine:
    """The fingerprint of a machine. Two runs are compared where all of it is the same."""

    cpu: str  # model name, as the kernel has it
    cores: int  # that this process may use
    features: tuple[str, ...]  # vector features, as the kernel writes them
    memory: int  # GiB, rounded
    kernel: str  # release
    torch: str | None  # versions
    tvm: str | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def this_machine() -> Machine:
    """The fingerprint of the machine of this process."""
    from relaxgrad.coverage.harness.records import versions

    installed = versions()
    flags = cpuinfo_flags() or frozenset()
    return Machine(
        cpu=cpuinfo().get("model name") or platform.processor() or platform.machine(),
        cores=cores(),
        features=tuple(sorted(f for f in flags if f in _VECTOR_FLAGS or f.startswith("avx512"))),
        memory=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        kernel=platform.release(),
        torch=installed["torch"],
        tvm=installed["apache-tvm"],
    )


def differences(now: dict[str, Any], then: dict[str, Any]) -> list[str]:
    """What differs between two fingerprints (as `to_json`, or read from a file), in words."""
    found = []
    for key in sorted(now.keys() | then.keys()):
        a, b = now.get(key), then.get(key)
        if isinstance(a, list | tuple) and isinstance(b, list | tuple):
            if lost := sorted(set(b) - set(a)):
                found.append(f"no {', '.join(lost)}")
            if more := sorted(set(a) - set(b)):
                found.append(f"{', '.join(more)} too")
        elif a != b:
            found.append(f"{key} {a}, there {b}")
    return found
