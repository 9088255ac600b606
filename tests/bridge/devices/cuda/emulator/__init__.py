# SPDX-License-Identifier: Apache-2.0
"""The CUDA device on a machine without a GPU: its own schedules, passes and source, run by a processor.

`EmulatedCuda` takes the tensors of torch's device "cpu" and compiles for an NVIDIA GPU; what TVM makes, CUDA source, is
rewritten (source.py) and compiled by g++ against a header that checks every access (include/emulator.h). What differs
from a GPU is the memory, the order in which blocks and threads run, and the C library's functions for CUDA's.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from relaxgrad.bridge.devices import cpu
from relaxgrad.bridge.devices.cuda import Cuda
from relaxgrad.bridge.devices.cuda.on_host import CudaOnHost
from relaxgrad.bridge.devices.cuda.target import cuda_target

from . import source

HERE = Path(__file__).parent
_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-w", f"-I{HERE / 'include'}")


class EmulatedCuda(CudaOnHost):
    """Compiles graphs of the host's tensors for a GPU, and runs them."""

    is_host = True
    vm_device = (1, 0, 2)

    def target(self, name: str, model: str) -> Any:
        _patch()
        return cuda_target("cuda:sm_90", "sm_90", on="llvm")

    def triple(self) -> str:
        return self._host.triple()

    def before_load(self) -> None:
        _library()

    def can_run(self, target: Any = None) -> tuple[bool, str]:
        return True, "emulated"


DEVICE = EmulatedCuda(cpu.DEVICE)
#: Where a list, gets the CUDA source of every graph that this process compiles.
sources: list[str] | None = None


@functools.cache
def _folder() -> Path:
    """Where compiled code is kept, by the text that it is made of."""
    parts = [HERE / "emulator.cpp", HERE / "source.py", *sorted((HERE / "include").iterdir())]
    texts = hashlib.sha256(b"".join(part.read_bytes() for part in parts))
    path = Path(tempfile.gettempdir(), f"relaxgrad-emulator-{os.getuid()}-{texts.hexdigest()[:12]}")
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _gcc(path: Path, text: str | Path, *options: str) -> Path:
    """Compiles C++ to `path`, unless it is there. Raises RuntimeError with the compiler's first error."""
    if path.exists():
        return path
    code = path.with_suffix(f".{os.getpid()}.cpp")
    out = path.with_suffix(f".{os.getpid()}.tmp")
    code.write_text(text.read_text() if isinstance(text, Path) else text)
    done = subprocess.run(
        ["g++", *_FLAGS, *options, str(code), "-o", str(out)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        raise RuntimeError(f"g++ refused {code}: {errors[:3]}")
    out.replace(path)
    code.unlink()
    return path


@functools.cache
def _library() -> ctypes.CDLL:
    """The emulator itself, visible to the libraries of compiled graphs."""
    import tvm_ffi  # noqa: F401  # raises the emulator's errors

    return ctypes.CDLL(
        str(_gcc(_folder() / "emulator.so", HERE / "emulator.cpp", "-shared", "-O2")), ctypes.RTLD_GLOBAL
    )


def compile_source(text: str, launch_params: dict[str, list[str]], entries: dict[str, str]) -> Path:
    """The object file of the kernels in CUDA source, and of the functions that the machine calls."""
    code = source.rewrite(text, launch_params) + "".join(source.entry(name, inner) for name, inner in entries.items())
    return _gcc(_folder() / f"{hashlib.sha256(code.encode()).hexdigest()[:24]}.o", code, "-c")


@functools.cache
def _patch() -> None:
    """Has TVM's build of a module for CUDA end in C++ that is linked into the graph's library."""
    import tvm
    import tvm.tirx.build

    build = sys.modules["tvm.tirx.build"]
    generate = build.codegen_build

    def to_runtime(host: Any, devices: dict[Any, Any], target_host: Any) -> Any:
        cuda = {t: m for t, m in devices.items() if t.kind.name == Cuda.kind and m.functions}
        if not _is_emulating():
            return original(host, devices, target_host)
        texts, launch_params = [], {}
        for target, module in cuda.items():
            texts.append(generate(module, target).inspect_source())
            for var, function in module.functions.items():
                launch_params[str(var.name_hint)] = [str(p) for p in function.attrs["tirx.kernel_launch_params"]]
        if len(texts) > 1:
            raise RuntimeError("kernels for several targets in one module")
        if sources is not None:
            sources.extend(texts)
        host, entries = _on_this_machine(tvm.IRModule(host.functions, attrs=host.attrs), set(launch_params))
        made = generate(host, target_host)
        if not texts:  # no elements, hence no kernels
            return made
        names = [*(f"__tvm_ffi_{name}" for name in launch_params), *entries]
        made.import_module(
            tvm.runtime.load_static_library(str(compile_source(texts[0], launch_params, entries)), names)
        )
        return made

    original = build.tir_to_runtime
    build.tir_to_runtime = to_runtime


def _is_emulating() -> bool:
    from relaxgrad.bridge.device import devices

    return isinstance(devices().get("cpu"), EmulatedCuda)


def _on_this_machine(host: Any, kernels: set[str]) -> tuple[Any, dict[str, str]]:
    """(the host's functions, with kernels called as C functions and memory of the emulator; function -> its new name).

    A function that launches kernels gets a name of its own, and one in front of it (source.entry) its old one.
    """
    import tvm
    import tvm_ffi
    from tvm import ir, tirx

    from relaxgrad.bridge.compile.schedule.analysis import collect

    def is_launch(call: Any) -> bool:
        return _op(call) == "tvm_call_packed_lowered" and str(call.args[0].value) in kernels

    def replaced(call: Any) -> Any:
        if is_launch(call):
            name = ir.StringImm(f"__tvm_ffi_{call.args[0].value}")
            c_call = ir.Op.get("tirx.tvm_call_cpacked_lowered")
            return ir.Call(c_call, [name, *call.args[1:]], ret_ty=call.ty)
        if _op(call) == "tvm_call_packed_lowered" and str(call.args[0].value) == "__tvm_set_device":
            return tirx.const(0, "int32")
        if _op(call) == "TVMBackendAllocWorkspace":
            return tirx.call_extern("handle", "emulator_workspace", call.args[2].astype("int64"))
        if _op(call) == "TVMBackendFreeWorkspace":
            return tirx.call_extern("int32", "emulator_free_workspace", call.args[2])
        return call

    updated, entries = tvm.IRModule({}, attrs=host.attrs), {}
    for var, function in host.functions.items():
        changed = function.with_body(tvm_ffi.structural_map(function.body, (ir.Call, replaced)))
        if any(map(is_launch, collect(function.body, ir.Call))):
            symbol = str(function.attrs["global_symbol"])
            entries[symbol] = f"{symbol}_launches"
            changed = changed.with_attr("global_symbol", entries[symbol])
        updated[var] = changed
    return updated, entries


def _op(call: Any) -> str:
    return getattr(call.op, "name", "").removeprefix("tirx.")
