# SPDX-License-Identifier: Apache-2.0
"""CUDA source to machine code by NVIDIA's compiler, and what each kernel takes of a multiprocessor."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from ...device import Usage

_ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?"
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)
_SHARED = re.compile(r"(\d+) bytes smem")


def nvcc() -> str | None:
    """NVIDIA's compiler on PATH, or None."""
    return shutil.which("nvcc")


def compile_cubin(source: str, arch: str) -> tuple[bytes, dict[str, Usage]]:
    """(the binary for an architecture such as sm_90, what each kernel in it takes).

    Raises FileNotFoundError without nvcc, RuntimeError with nvcc's first line where it refuses the source.
    """
    compiler = nvcc()
    if compiler is None:
        raise FileNotFoundError("there is no nvcc on PATH")
    with tempfile.TemporaryDirectory(prefix="relaxgrad-") as folder:
        text, binary = Path(folder, "kernels.cu"), Path(folder, "kernels.cubin")
        text.write_text(source)
        command = [compiler, "-cubin", f"-arch={arch}", "-Xptxas", "-v", "-o", str(binary), str(text)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0 or not binary.exists():
            lines = [line for line in (done.stderr or done.stdout).splitlines() if "error" in line]
            raise RuntimeError(f"nvcc -cubin -arch={arch} failed: {lines[0] if lines else 'no message'}")
        return binary.read_bytes(), _usages(done.stderr)


def _usages(report: str) -> dict[str, Usage]:
    found = {}
    for entry in _ENTRY.finditer(report):
        shared = _SHARED.search(entry["rest"])
        spilled = int(entry["stores"]) + int(entry["loads"])
        found[entry["name"]] = Usage(int(entry["registers"]), spilled, int(shared[1]) if shared else 0)
    return found
