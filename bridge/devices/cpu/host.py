# SPDX-License-Identifier: Apache-2.0
"""The processor of this machine, as the system's kernel and LLVM tell of it."""

from __future__ import annotations

import functools
import platform
from dataclasses import dataclass
from pathlib import Path

from ...forked import cores

# LLVM names a CPU by family and model, and TVM then uses every feature that such a CPU has. A virtual machine may hide
# some; using one is an illegal instruction. Vector features as LLVM writes them -> as /proc/cpuinfo writes them.
_CPUINFO_FLAGS = {
    "avx": "avx",
    "avx2": "avx2",
    "fma": "fma",
    "f16c": "f16c",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "lzcnt": "abm",
    "popcnt": "popcnt",
    "sse4.2": "sse4_2",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avxvnni": "avx_vnni",
    "gfni": "gfni",
    "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq",
    "amx-tile": "amx_tile",
    "amx-bf16": "amx_bf16",
    "amx-int8": "amx_int8",
}


@dataclass(frozen=True)
class HostCpu:
    """The CPU of this machine as LLVM sees it."""

    name: str  # LLVM's name, as `znver4`
    features: tuple[str, ...]  # usable vector features, LLVM's names
    hidden: tuple[str, ...]  # vector features of such a CPU that this machine hides
    cores: int  # that this process may use


def cpuinfo(path: str = "/proc/cpuinfo") -> dict[str, str]:
    """What the kernel tells of the first processor; empty where there is no such file (not Linux)."""
    try:
        block = Path(path).read_text(errors="replace").strip().split("\n\n")[0]
    except OSError:
        return {}
    lines = (line.partition(":") for line in block.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def cpuinfo_flags() -> frozenset[str] | None:
    """The CPU flags that the kernel reports, or None where it reports none (not Linux, or not x86)."""
    flags = cpuinfo().get("flags")
    return None if flags is None else frozenset(flags.split())


def usable_features(features: set[str], flags: frozenset[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the vector features of an LLVM CPU into (usable, hidden) by the kernel's flags.

    With `flags` None nothing is known and all are taken as usable.
    """
    known = sorted(features & _CPUINFO_FLAGS.keys())
    if flags is None:
        return tuple(known), ()
    usable = tuple(f for f in known if _CPUINFO_FLAGS[f] in flags)
    return usable, tuple(f for f in known if f not in usable)


@functools.cache
def host_cpu() -> HostCpu:
    """LLVM's view of this machine's CPU, with the features that a virtual machine hides kept apart."""
    from tvm.target import Target, codegen

    name = str(codegen.llvm_get_system_cpu())
    features = {str(f) for f in codegen.llvm_get_cpu_features(Target({"kind": "llvm", "mcpu": name}))}
    usable, hidden = usable_features(features, cpuinfo_flags())
    return HostCpu(name, usable, hidden, cores())


@functools.cache
def fingerprint(path: str = "/proc/cpuinfo") -> list[str]:
    """What the first processor is and can do, as the kernel tells it; the machine's name where it tells nothing."""
    wanted = {"vendor_id", "cpu family", "model", "model name", "stepping", "flags"}
    wanted |= {"Features", "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"}
    found = [f"{name}:{value}" for name, value in cpuinfo(path).items() if name in wanted]
    return [platform.machine(), *(found or [platform.node()])]
