# SPDX-License-Identifier: Apache-2.0
"""TVM's runtime without TVM's compiler: loads compiled libraries and runs them in Relax's virtual machine.

Note [Only the runtime]
`import tvm` loads the compiler and its Python layers, and takes two seconds. A graph that comes out of the cache needs
neither, so this file speaks to the 3 MB runtime library through `tvm_ffi` alone. A later `import tvm` finds that
library loaded.

Note [What the virtual machine holds]
A virtual machine keeps the value that its last call returned until another call returns: a forward graph's saved
activations, a backward graph's gradients, long after the caller let go of them, and beside those of the next step. So
every library has a function that returns nothing (`RELEASE`), called once the results are taken.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm_ffi

from ..device import Device

#: The function of a library that returns an empty tuple: see Note [What the virtual machine holds].
RELEASE = "release"

#: The function of a library that makes a virtual machine.
_ENTRY = "vm_load_executable"


def runtime_library(kind: str = "") -> Path | None:
    """TVM's runtime library, or the one of a kind of device; None where it is not beside the package."""
    found = importlib.util.find_spec("tvm")
    name = f"libtvm_runtime_{kind}.so" if kind else "libtvm_runtime.so"
    library = Path(str(found.origin)).parent / "lib" / name if found is not None else None
    return library if library is not None and library.exists() else None


@functools.cache
def load_runtime() -> None:
    """Loads TVM's runtime library: see Note [Only the runtime]."""
    if "tvm" in sys.modules:
        return
    library = runtime_library()
    if library is None or "TVM_LIBRARY_PATH" in os.environ:
        import tvm  # noqa: F401  # a build from source keeps its libraries elsewhere, and tvm knows where
    else:
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


def load_library(path: Path, device: Device) -> Any:
    """The compiled library at `path` (a runtime module), for graphs of `device`.

    Raises RuntimeError where the system's loader refuses it, AttributeError where it holds no Relax function.
    """
    load_runtime()
    device.before_load()
    library = tvm_ffi.load_module(str(path), keep_module_alive=False)
    library[_ENTRY]
    device.loaded(path)
    return library


class VirtualMachine:
    """A virtual machine on one device for one library. For one thread at a time."""

    def __init__(self, library: Any, device: Device):
        load_runtime()
        self._module = library[_ENTRY]()
        self._module["vm_initialization"](*device.vm_device)
        self.main: Callable[..., Any] = self._module["main"]
        self.release: Callable[[], Any] = self._module[RELEASE]

    def instrument(self, hook: Callable[..., int] | None) -> None:
        """Has `hook(function, name, before, returned, *args)` called around each kernel; None: nothing, as at first."""
        self._module["set_instrument"](hook)
