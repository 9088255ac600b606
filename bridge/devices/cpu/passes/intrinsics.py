# SPDX-License-Identifier: Apache-2.0
"""The elementary functions of float32 on `llvm`: calls of vector functions that are linked into the kernels.

TVM lowers its ops for them to libm calls, one a lane. The lowerings here run after vectorisation and see vector types;
they call a function of `math/` of that width, which LLVM inlines, so a kernel's vector loop stays one, and a scalar
loop is plain arithmetic that LLVM can vectorise. Halves are computed in float32; float64 is left to the C library.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tvm import ir, s_tir, tirx

from ....compile.kernel_pass import kernel_pass
from ....compile.schedule.analysis import collect, with_block_body
from ....importer.compute import intrinsic
from .. import math
from . import selects

Expr = Any

#: Function -> the TVM op that stands for it in kernels; the others are ops of our own (importer/compute/intrinsic.py).
_TVM_OPS = {
    "erf": "tirx.erf",
    "exp": "tirx.exp",
    "exp2": "tirx.exp2",
    "log": "tirx.log",
    "log1p": "tirx.log1p",
    "log2": "prim.log2",
    "log10": "tirx.log10",
    "sin": "tirx.sin",
    "cos": "tirx.cos",
    "tanh": "tirx.tanh",
}
_FUNCTIONS = {_TVM_OPS.get(name) or intrinsic.OPS[name]: name for name in math.FUNCTIONS}
#: Widths of which there are functions; vectors of another go lane by lane.
LANES = (1, 4, 8, 16)


class _Use(threading.local):
    on = False


_use = _Use()


@contextlib.contextmanager
def in_use() -> Iterator[None]:
    """Kernels that this thread compiles meanwhile get our functions; they need `link` as well.

    TVM's table of lowerings is one for the whole process: what others compile in it keeps the lowering that it had.
    """
    _register()
    before, _use.on = _use.on, True
    try:
        yield
    finally:
        _use.on = before


@functools.cache
def _register() -> None:
    for op, name in _FUNCTIONS.items():
        ir.register_op_attr(op, "TVectorizable", True, level=99)
        tirx.register_intrin_lowering(op, target="llvm", f=_lowering(op, name), level=99)


def _lowering(op_name: str, name: str) -> Callable[[Any], Expr]:
    op = ir.Op.get(op_name)
    attributes = ("llvm.FLowerIntrinsic", "llvm.FLegalize", "default.FLowerIntrinsic", "default.FLegalize")
    default = next(filter(None, map(op.get_attr, attributes)), None)

    def lower(call: Any) -> Expr:
        dtype, _, lanes = str(call.ty.dtype).partition("x")
        count = int(lanes or 1)
        if not _use.on:
            return call if default is None else intrinsic.by_lane(call, default)
        if dtype in ("float16", "bfloat16"):
            wide = [a.astype(f"float32x{lanes}" if lanes else "float32") for a in call.args]
            return tirx.call_intrin(str(wide[0].ty.dtype), op, *wide).astype(str(call.ty.dtype))
        if dtype != "float32":
            return call if default is None else intrinsic.by_lane(call, default)
        if count not in LANES:
            return intrinsic.by_lane(call, lower)
        return tirx.call_pure_extern(str(call.ty.dtype), _symbol(name, count), *call.args)

    return lower


def _symbol(name: str, lanes: int) -> str:
    return f"relaxgrad.{name}.{lanes}"


@functools.cache
def _text(name: str) -> str:
    """LLVM IR of a function, at all widths."""
    if name == selects.OP:
        return selects.text()
    function, arguments = math.FUNCTIONS[name]
    return "\n".join(math.Lanes(n).function(_symbol(name, n), function, arguments) for n in LANES)


@functools.cache
def instructions(op: str) -> int:
    """Vector instructions of an elementary function of float32, those on float64 twice; 0 for what is none of ours."""
    name = _FUNCTIONS.get(op)
    if name is None:
        return 0
    function, arguments = math.FUNCTIONS[name]
    lines = math.Lanes(LANES[-1]).function(_symbol(name, LANES[-1]), function, arguments).splitlines()
    computed = [line for line in lines if " = " in line and " bitcast " not in line]
    return sum(2 if " double>" in line else 1 for line in computed)


def _linked(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    names = _used(kernel)
    return _importing(kernel, names) if names else kernel


def link() -> Any:
    """The pass that links what kernels call: for `llvm`, before they are lowered."""
    return kernel_pass("LinkVectorMath", _linked)


def _used(function: tirx.PrimFunc) -> list[str]:
    ops = {getattr(call.op, "name", "") for call in collect(function.body, ir.Call)}
    return sorted({_FUNCTIONS.get(op, op) for op in ops if op in _FUNCTIONS or op == selects.OP})


def _importing(function: tirx.PrimFunc, names: list[str]) -> tirx.PrimFunc:
    """Inside of the root block, which passes of TVM want to find outermost."""
    body = function.body
    if not isinstance(body, s_tir.SBlockRealize):
        return function.with_body(_import(body, names))
    return function.with_body(with_block_body(body, _import(body.block.body, names)))


def _import(body: Any, names: list[str]) -> Any:
    for name in names:
        body = tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", ir.StringImm(_text(name)), body)
    return body
