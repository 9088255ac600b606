# SPDX-License-Identifier: Apache-2.0
"""Targets by name: what this machine can compile for, what it can run, and the TVM target behind each name.

A name is `KIND` or `KIND:MODEL`: a kind of target of TVM's, and this machine's model of it or another; `auto` is the
kind of the graph's device. TVM is imported inside the functions only.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .device import Device, devices, host
from .errors import UserError

if TYPE_CHECKING:
    from tvm.target import Target

#: The name of the target that is the device's own: this machine's.
AUTO = "auto"


@dataclass(frozen=True)
class CompileProbe:
    """Result of compiling (and, where it can, running) one tiny kernel."""

    ok: bool
    detail: str  # what was done, or why it failed
    seconds: float = 0.0


def kinds() -> dict[str, Device]:
    """TVM's kind of target -> the device, the host's first."""
    return {device.kind: device for device in sorted(devices().values(), key=lambda device: not device.is_host)}


@functools.cache
def can_compile(kind: str) -> tuple[bool, str]:
    """Whether the installed TVM has a code generator for `kind`, and why not (or which)."""
    device = kinds().get(kind)
    if device is None:
        return False, f"relaxgrad has no target {kind!r}: it knows {', '.join(kinds())}"
    import tvm.target.codegen  # noqa: F401  # registers the generators
    import tvm_ffi

    if tvm_ffi.get_global_func(f"target.build.{kind}", allow_missing=True) is None:
        return False, f"the installed TVM was built without a {kind} code generator"
    return True, device.generator()


def can_run(kind: str) -> tuple[bool, str]:
    """Whether code for `kind` runs on this machine, and on what (or why not)."""
    ok, why = can_compile(kind)
    return kinds()[kind].can_run() if ok else (False, why)


def available() -> str:
    """One phrase that says which targets there are here, for error messages."""
    phrases = []
    for kind in kinds():
        if can_run(kind)[0]:
            phrases.append(f"{kind} (compile and run)")
        elif can_compile(kind)[0]:
            phrases.append(f"{kind} (compile only)")
    return ", ".join(phrases) or "none"


def resolve_target(name: str, device: Device | None = None, *, to_run: bool = True) -> Target:
    """The TVM target of `name`, with its host; of a graph on `device` where one is given.

    With `to_run`, the target must also run on this machine. Raises UserError for a name that is unknown, malformed,
    absent here or of another device; the message lists what there is.
    """
    own = (device or host()).kind
    if name == AUTO:
        name = own
    kind, _, model = name.partition(":")
    if kind not in kinds() or (":" in name and not model):
        examples = ", ".join(known.example() for known in kinds().values())
        raise UserError(f"target {name!r} is unknown; write KIND or KIND:MODEL, as {examples}; here: {available()}")
    compiles, why = can_compile(kind)
    if not compiles:
        raise UserError(f"target {name!r} is not there: {why}; here: {available()}")
    found = kinds()[kind]
    target = found.target(name, model)
    if to_run:
        runs, why = found.can_run(target)
        if not runs:
            raise UserError(
                f"target {name!r} can be compiled but not run here: {why}; here: {available()}. "
                f"Take --target {host().kind}"
            )
    if device is not None and kind != own:
        raise UserError(f"target {name!r} is not of the {device.name} tensors of this model: leave it out, or {own!r}")
    return target


def probe_compile(name: str) -> CompileProbe:
    """Compile a tiny kernel for the target `name`, and run it where it can be run.

    Never raises: a failure is the result.
    """
    start = time.perf_counter()
    try:
        target = resolve_target(name, to_run=False)
        detail = kinds()[target.kind.name].probe(target, _probe_kernel())
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
