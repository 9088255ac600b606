# SPDX-License-Identifier: Apache-2.0
"""From TVM's executable to a shared library on disk, with the system's linker alone."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...device import Device, host
from ...runtime.virtual_machine import load_library

#: Looked for in this order. A linker by itself takes 10 ms, one called by a compiler 50 ms.
_LINKERS = ("ld", "ld.lld", "ld.gold", "cc", "gcc", "clang")


@functools.cache
def linker() -> list[str] | None:
    """The command that makes a shared library, without its files; None where there is none on PATH.

    Every symbol must be found when the library is loaded (`-z now`): one that is missing would end the process later.
    """
    for name in _LINKERS:
        path = shutil.which(name)
        if path is not None:
            now = ["-z", "now"] if name.startswith("ld") else ["-Wl,-z,now"]
            return [path, "-shared", "-s", *now]
    return None


def load(executable: Any, device: Device) -> Any:
    """The code of a Relax executable as a library of this process, kept nowhere; None where it cannot be linked."""
    with tempfile.TemporaryDirectory(prefix="relaxgrad-") as folder:
        path = Path(folder, "graph.so")
        try:
            export(executable, path, device)
            return load_library(path, device)  # the file may go: it is mapped
        except (RuntimeError, OSError):
            return None


def export(executable: Any, path: Path, device: Device) -> None:
    """Writes the code of a Relax executable to `path`, a shared library.

    With the objects of its device. Raises RuntimeError where the linker fails or is missing, and what TVM raises.
    """
    command = linker()
    if command is None:
        raise RuntimeError(f"there is no linker ({', '.join(_LINKERS)}) on PATH")

    def link(output: str, objects: Sequence[str], **_: Any) -> None:
        own = {Path(f"{output}.{name}.o"): code for name, code in device.objects().items()}
        try:
            for file, code in own.items():
                file.write_bytes(code)
            done = subprocess.run(
                [*command, "-o", output, *objects, *map(str, own)], capture_output=True, text=True, check=False
            )
        finally:
            for file in own:
                file.unlink(missing_ok=True)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise RuntimeError(f"{os.path.basename(command[0])} failed: {lines[0] if lines else 'no message'}")

    # Of a graph without kernels TVM would write C, and want a compiler for it, unless it is told of a machine.
    link.get_target_triple = host().triple  # type: ignore[attr-defined]  # read by TVM
    executable.export_library(str(path), fcompile=link)
