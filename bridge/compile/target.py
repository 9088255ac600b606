"""Targets by name: what this machine can compile for, what it can run, and the TVM target behind each name.

A name is `KIND` or `KIND:MODEL`: `llvm` (this machine's CPU), `llvm:skylake-avx512` (another CPU of this
architecture), `cuda` (this machine's GPU), `cuda:sm_90`. TVM is imported inside the functions only.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError

if TYPE_CHECKING:
    from tvm.target import Target

KINDS = ("llvm", "cuda")
DEFAULT_CUDA_ARCH = "sm_90"  # what `cuda` means on a machine without a GPU, where the module is only compiled

#: LLVM's loop vectoriser, where it turns branches into masks, may take `x[b % 4]` for `x[b]` and read outside of the
#: tensor (found with LLVM 22; tests/bridge/compile/test_llvm.py has the kernel). Loops without branches keep it.
LLVM_OPTIONS = ["-enable-if-conversion:bool=false"]

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
class CompileProbe:
    """Result of compiling (and, on the CPU, running) one tiny kernel."""

    ok: bool
    detail: str  # what was done, or why it failed
    seconds: float = 0.0


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


def cpu_cores() -> int:
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def host_cpu() -> HostCpu:
    """LLVM's view of this machine's CPU, with the features that a virtual machine hides kept apart."""
    from tvm.target import Target, codegen

    name = str(codegen.llvm_get_system_cpu())
    features = {str(f) for f in codegen.llvm_get_cpu_features(Target({"kind": "llvm", "mcpu": name}))}
    usable, hidden = usable_features(features, cpuinfo_flags())
    return HostCpu(name, usable, hidden, cpu_cores())


@functools.cache
def can_compile(kind: str) -> tuple[bool, str]:
    """Whether the installed TVM has a code generator for `kind`, and why not (or which)."""
    if kind not in KINDS:
        return False, f"relaxgrad has no target {kind!r}: it knows {', '.join(KINDS)}"
    import tvm_ffi
    from tvm.target import codegen

    if tvm_ffi.get_global_func(f"target.build.{kind}", allow_missing=True) is None:
        return False, f"the installed TVM was built without a {kind} code generator"
    if kind == "llvm":
        return True, f"LLVM {codegen.llvm_version_major()}"
    nvcc = shutil.which("nvcc")
    return True, f"CUDA source, then {nvcc}" if nvcc else "CUDA source only: no nvcc on PATH to make a binary of it"


def can_run(kind: str) -> tuple[bool, str]:
    """Whether code for `kind` runs on this machine, and on what (or why not)."""
    ok, why = can_compile(kind)
    if not ok:
        return False, why
    if kind == "llvm":
        cpu = host_cpu()
        return True, f"{cpu.name}, {cpu.cores} core{'s' if cpu.cores != 1 else ''}"
    import torch
    import tvm

    if not torch.cuda.is_available():
        built = "" if torch.version.cuda else f" (and torch {torch.__version__} is a build without CUDA)"
        return False, f"this machine has no usable NVIDIA GPU{built}"
    if not tvm.cuda(0).exist:
        return False, "torch sees a GPU, but TVM's CUDA runtime does not load"
    major, minor = torch.cuda.get_device_capability(0)
    return True, f"{torch.cuda.get_device_name(0)} (sm_{major}{minor})"


def available() -> str:
    """One phrase that says which targets there are here, for error messages."""
    phrases = []
    for kind in KINDS:
        if can_run(kind)[0]:
            phrases.append(f"{kind} (compile and run)")
        elif can_compile(kind)[0]:
            phrases.append(f"{kind} (compile only)")
    return ", ".join(phrases) or "none"


def resolve_target(name: str, *, to_run: bool = True) -> Target:
    """The TVM target of `name`, with its host.

    With `to_run`, the target must also run on this machine. Raises UserError for a name that is unknown, malformed or
    absent here; the message lists what there is.
    """
    kind, _, model = name.partition(":")
    if kind not in KINDS or (":" in name and not model):
        raise UserError(
            f"target {name!r} is unknown; write KIND or KIND:MODEL, as llvm, llvm:{host_cpu().name}, cuda, cuda:sm_90; "
            f"here: {available()}"
        )
    compiles, why = can_compile(kind)
    if not compiles:
        raise UserError(f"target {name!r} is not there: {why}; here: {available()}")
    target = _llvm_target(name, model) if kind == "llvm" else _cuda_target(name, model)
    if to_run:
        runs, why = _runs_here(target)
        if not runs:
            raise UserError(
                f"target {name!r} can be compiled but not run here: {why}; here: {available()}. Take --target llvm"
            )
    return target


def _runs_here(target: Target) -> tuple[bool, str]:
    """`can_run`, and for a CPU named by the user also whether this one has its vector features."""
    if target.kind.name == "llvm" and str(target.attrs["mcpu"]) != host_cpu().name:
        from tvm.target import codegen

        _, lacking = usable_features({str(f) for f in codegen.llvm_get_cpu_features(target)}, cpuinfo_flags())
        if lacking:
            return False, f"this machine's CPU ({host_cpu().name}) lacks {', '.join(lacking)}"
    return can_run(target.kind.name)


@functools.cache
def _llvm_target(name: str, model: str) -> Target:
    from tvm.target import Target, codegen

    cpu = host_cpu()
    spec: dict[str, Any] = {"kind": "llvm", "mcpu": model or cpu.name, "num-cores": cpu.cores, "cl-opt": LLVM_OPTIONS}
    if model and not codegen.llvm_is_valid_cpu(model, codegen.llvm_get_system_triple()):
        raise UserError(
            f"target {name!r}: LLVM {codegen.llvm_version_major()} knows no {platform.machine()} CPU named {model!r}; "
            f"this machine's is {cpu.name!r}"
        )
    if not model and cpu.hidden:
        spec["mattr"] = [f"-{feature}" for feature in cpu.hidden]
    return Target(spec)


@functools.cache
def _cuda_target(name: str, model: str) -> Target:
    from tvm.target import Target

    if model and not re.fullmatch(r"sm_\d{2,3}[af]?", model):
        raise UserError(f"target {name!r}: a CUDA model is an architecture such as sm_80, sm_90 or sm_90a")
    arch = model or _this_gpu() or DEFAULT_CUDA_ARCH
    # The limits are those of every architecture since sm_50; without them TVM asks the driver, which may be absent.
    spec = {"kind": "cuda", "arch": arch, "max_num_threads": 1024, "thread_warp_size": 32}
    spec |= {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152, "registers_per_block": 65536}
    return Target(spec, host=_llvm_target("llvm", ""))


def _this_gpu() -> str | None:
    import torch

    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(0)
    return f"sm_{major}{minor}"


def probe_compile(name: str) -> CompileProbe:
    """Compile a tiny kernel for the target `name`: on this CPU also run it, on cuda hand its source to nvcc.

    Never raises: a failure is the result.
    """
    start = time.perf_counter()
    try:
        target = resolve_target(name, to_run=False)
        detail = _probe_llvm(target) if target.kind.name == "llvm" else _probe_cuda(target)
        ok = True
    except Exception as error:
        ok, detail = False, f"{type(error).__name__}: {_first_line(error)}"
    return CompileProbe(ok, detail, round(time.perf_counter() - start, 3))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else ""


def _probe_kernel() -> Any:
    from tvm import te

    x = te.placeholder((1024,), name="x", dtype="float32")
    y = te.compute((1024,), lambda i: x[i] * x[i] + te.const(1.0, "float32"), name="y")
    return te.create_prim_func([x, y])


def _probe_llvm(target: Target) -> str:
    import torch
    import tvm

    kernel = tvm.compile(_probe_kernel(), target=target)
    runs, why = _runs_here(target)
    if not runs:
        return f"a kernel compiled; not run: {why}"
    x = torch.linspace(-2.0, 2.0, 1024)
    y = torch.full_like(x, float("nan"))
    kernel["main"](x, y)
    if not torch.allclose(y, x * x + 1.0):
        raise RuntimeError("a kernel compiled, ran, and gave wrong values")
    return "a kernel compiled, ran, and gave the right values"


def _probe_cuda(target: Target) -> str:
    import tvm
    from tvm.s_tir import Schedule

    schedule = Schedule(_probe_kernel())
    (loop,) = schedule.get_loops(schedule.get_sblock("y"))
    block, thread = schedule.split(loop, [None, 128])
    schedule.bind(block, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    built = tvm.compile(schedule.mod, target=target)
    sources = [m.inspect_source() for m in built.mod.imports if m.kind == "cuda"]
    if not sources:
        raise RuntimeError("TVM built a module that holds no CUDA source")
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return "CUDA source was generated; no nvcc on PATH to make a binary of it"
    with tempfile.TemporaryDirectory(prefix="relaxgrad-") as folder:
        source, binary = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
        source.write_text("\n".join(sources))
        arch = str(target.attrs["arch"])
        run = subprocess.run(
            [nvcc, "-cubin", f"-arch={arch}", "-o", str(binary), str(source)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if run.returncode != 0 or not binary.exists():
            lines = (run.stderr or run.stdout).strip().splitlines()
            raise RuntimeError(f"nvcc -cubin -arch={arch} failed: {lines[0] if lines else 'no message'}")
        return f"CUDA source was generated and nvcc made a {arch} binary of {binary.stat().st_size} bytes"
