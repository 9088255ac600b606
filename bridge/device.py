# SPDX-License-Identifier: Apache-2.0
"""What a device decides, asked of it in one place: from the tensors that it takes to the memory that a graph runs in.

A device is a folder of `bridge/devices` whose `__init__.py` has it as `DEVICE`. What `Device` says by itself is the
plainest device that there could be: loops as they stand, sums in float64, nothing linked, products and convolutions by
ATen. Importing a device loads no TVM: a graph that comes out of the cache needs none of it. This file loads no torch.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch
    import torch.fx
    from tvm.target import Target

    from .kinds import Kind


@dataclass(frozen=True)
class Rewrite:
    """Nodes that are converted together, in the place of the last of them."""

    nodes: Sequence[torch.fx.Node]  # in the graph's order
    kind: Kind
    convert: Callable[[Any], Any]  # ConversionContext -> value of the last node; where it raises, each is converted


@dataclass(frozen=True)
class Usage:
    """What a kernel takes of an accelerator, as its assembler reports it."""

    registers: int  # of a thread
    spilled: int  # bytes stored and loaded again for want of registers
    shared: int  # bytes of a block


class Device:
    """The decisions of one kind of device. Methods that take TVM's values are called once TVM is loaded."""

    name: ClassVar[str]  # torch's: `tensor.device.type`
    kind: ClassVar[str]  # TVM's: `target.kind.name`
    is_host: ClassVar[bool] = False  # whether this process reads its memory
    #: DLPack's number of the device, the number among its kind, and the virtual machine's allocator: 2 keeps blocks.
    #: A device that is not the host's has the host's behind its own.
    vm_device: ClassVar[tuple[int, ...]]

    #: The format in which a compiled kernel is listed, as TVM calls it, as files are named, and for people.
    listing: ClassVar[str]
    suffix: ClassVar[str]
    listing_name: ClassVar[str]

    @property
    def compiles(self) -> bool:
        """Whether graphs of its tensors are compiled; False: it has a target, and no more."""
        return True

    # ---- capture ----

    #: Ops (`namespace.op`) of this device that must not be decomposed: torch's decomposition is wrong in training.
    not_decomposed: ClassVar[tuple[str, ...]] = ()
    #: Ops of this device -> ops with the same arguments for which PyTorch has a formula of floating-point operations.
    same_flops: ClassVar[Mapping[str, str]] = {}

    def batch_norm_reserve(self, x: torch.Tensor) -> torch.Tensor | None:
        """What batch norm saves for its gradient beside the statistics; None: not known, and the op stays whole."""
        return None

    # ---- importer ----

    @property
    def registered(self) -> str:
        """The name under which the ways to run ops on this device are registered (importer/registry.py)."""
        return self.name

    def takes(self, value: torch.Tensor) -> bool:
        """Whether a kernel may have this tensor as an argument. Other values go to ATen as they are."""
        return value.device.type == self.name

    def accumulator(self, dtype: str) -> str:
        """The dtype in which sums of `dtype` accumulate.

        ATen accumulates halves in float32 and sums float32 by pairwise blocks; a running float64 sum is at least as
        accurate as those and needs no second pass.
        """
        return "float64" if dtype.startswith(("float", "bfloat")) else "int64"

    @property
    def folder(self) -> str:
        """The package that the device is."""
        return type(self).__module__

    @functools.cache  # noqa: B019  # one object a process
    def load_implementations(self) -> None:
        """Registers what converts ops for this device alone: every module of the device's folder `ops`."""
        package = f"{self.folder}.ops"
        if importlib.util.find_spec(package) is not None:
            for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
                importlib.import_module(f"{package}.{module.name}")

    def rewrites(self, graph: torch.fx.Graph, leave: Mapping[str, str]) -> dict[torch.fx.Node, Rewrite]:
        """Nodes that this device converts together, by the last of them. `leave`: names of nodes to leave alone."""
        return {}

    def tuned(self, module: torch.fx.GraphModule, keeps: bool = True) -> frozenset[int]:
        """What this machine measured, of which the code of a graph depends: a part of its key, and for `ctx.tuned`.

        `keeps`: whether an answer may be read from the folder of compiled graphs, and kept there.
        """
        return frozenset()

    # ---- compile ----

    def target(self, name: str, model: str) -> Target:
        """TVM's target; `model` is what stands behind the colon in `name`. Raises UserError for one that is none."""
        raise NotImplementedError

    def passes(self) -> list[Any]:
        """Passes over scheduled kernels, before memory is planned."""
        return []

    def rules(self) -> Sequence[Any]:
        """The rules by which kernels are scheduled, the first that fits: see compile/schedule/rule.py."""
        return ()

    def lowering(self) -> contextlib.AbstractContextManager[None]:
        """In use while this thread compiles: the device's own lowerings, of which TVM has one table a process."""
        return contextlib.nullcontext()

    def instructions(self, op: str) -> int:
        """Arithmetic instructions of a call of TVM's `op` on float32; 0 for one that is lowered as TVM does."""
        return 0

    def triple(self) -> str:
        """The machine that libraries are linked for, as compilers name it; the host alone has one."""
        raise NotImplementedError

    def objects(self) -> dict[str, bytes]:
        """Object files, by name, to be linked into every library."""
        return {}

    # ---- runtime ----

    def configure(self) -> None:
        """Sets the process up before a kernel runs in it. Called often, and acts once."""

    def configure_thread(self) -> None:
        """Sets a thread up before it first runs a graph."""

    def before_load(self) -> None:
        """Makes visible what the code of a library calls, before it is loaded."""

    def loaded(self, path: Path) -> None:
        """Sets up the library at `path`, just loaded."""

    # ---- another machine's ----

    def of_host_graphs(self) -> Device:
        """This device as one that takes the host's tensors: to compile for it where it is not there."""
        return self

    def assemble(self, source: str, target: Target) -> tuple[bytes, dict[str, Usage]] | None:
        """(machine code of the kernels in `source`, what each takes); None where the listing is all that there is.

        Raises UserError where a tool for it is missing, RuntimeError where it refuses the source.
        """
        return None

    # ---- this machine ----

    def fingerprint(self) -> list[Any]:
        """What of the machine decides the code of a graph: a part of its key."""
        return []

    def can_run(self, target: Target | None = None) -> tuple[bool, str]:
        """Whether code runs on this machine, and on what, or why not; of `target`, or of the device's own."""
        raise NotImplementedError

    def generator(self) -> str:
        """What turns TVM's code into machine code here, for people."""
        raise NotImplementedError

    def example(self) -> str:
        """Names of targets, as an error message shows them."""
        return self.kind

    def probe(self, target: Target, kernel: Any) -> str:
        """Compiles a kernel of 1,024 elements, y = x * x + 1, and runs it if it can; what was done, for people.

        Raises what TVM raises, and RuntimeError for wrong values.
        """
        raise NotImplementedError


# ---- the devices that there are ----


@functools.cache
def devices() -> dict[str, Device]:
    """torch's name of a device -> the device. Loads every folder of `bridge/devices` at the first call."""
    folder = importlib.import_module(f"{__package__}.devices")
    folders = (module.name for module in pkgutil.iter_modules(folder.__path__) if module.ispkg)
    found = (importlib.import_module(f"{folder.__name__}.{name}").DEVICE for name in folders)
    return {device.name: device for device in found}


def host() -> Device:
    """The device whose memory this process reads."""
    return next(device for device in devices().values() if device.is_host)


def device_of(module: torch.fx.GraphModule) -> Device:
    """The device that a graph is compiled for: that of its tensors, the host's for one without.

    Where an accelerator's tensors stand beside the host's it is the accelerator's: eager takes numbers of no dims from
    the host, and other values of another device go to ATen.
    """
    import torch

    from . import pytree

    known, found = devices(), host()
    if not any(device.compiles for device in known.values() if device is not found):
        return found
    for node in module.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            device = known.get(value.device.type) if isinstance(value, torch.Tensor) else None
            if device is not None and device.compiles and not device.is_host:
                return device
    return found
