# SPDX-License-Identifier: Apache-2.0
"""Selections between values that are both computed, where TVM would branch.

TVM makes a branch of a scalar `Select` whose operands read memory, in case one of the reads is out of bounds. The
importer's selections are in bounds on both sides (under vector lanes both are computed anyway; what must not be read
is an `if_then_else`), and a branch for each element is a misprediction for each other element, and keeps LLVM from
making vectors of the loop. So such a selection becomes an op of our own, and that one an instruction.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from ....compile.kernel_pass import kernel_pass
from ....compile.schedule.analysis import collect

OP = "relaxgrad.select"
_LLVM_TYPES = {"float32": "float", "float64": "double", "int32": "i32", "int64": "i64"}
_PURE = 1  # tirx.CallEffectKind.Pure

Expr = Any


def keep_selects() -> Any:
    """The pass that puts the op in the place of each `Select` of which TVM would make a branch; `llvm` only.

    What it makes calls functions that intrinsics.link() links.
    """
    return kernel_pass("KeepSelects", lambda kernel: tvm_ffi.structural_map(kernel, (tirx.Select, _kept)))


def _kept(select: Any) -> Expr:
    dtype = str(select.ty.dtype)
    if dtype not in _LLVM_TYPES or not (_reads(select.true_value) or _reads(select.false_value)):
        return select
    return tirx.call_intrin(dtype, OP, select.condition, select.true_value, select.false_value)


def _reads(value: Expr) -> bool:
    return bool(collect(value, ir.TensorLoad))


def text() -> str:
    """LLVM IR of the functions that scalar selections call."""
    return "\n".join(
        f"define {kind} @{_symbol(dtype)}(i32 %c, {kind} %a, {kind} %b) alwaysinline nounwind {{\n"
        f"  %t = icmp ne i32 %c, 0\n  %r = select i1 %t, {kind} %a, {kind} %b\n  ret {kind} %r\n}}"
        for dtype, kind in _LLVM_TYPES.items()
    )


def _symbol(dtype: str) -> str:
    return f"relaxgrad.select.{dtype}"


def _lower(call: Any) -> Expr:
    condition, a, b = call.args
    dtype = str(call.ty.dtype)
    if "x" in dtype:
        return tirx.Select(condition, a, b)
    return tirx.call_pure_extern(dtype, _symbol(dtype), condition.astype("int32"), a, b)


def _register() -> None:
    tvm_ffi.get_global_func("ir.RegisterOp")(OP, "one of two values, both computed")
    ir.register_op_attr(OP, "TCallEffectKind", _PURE)
    ir.register_op_attr(OP, "TVectorizable", True)
    ir.register_op_attr(OP, "TScriptPrinterName", "select")
    tirx.register_intrin_lowering(OP, target="llvm", f=_lower)


_register()
