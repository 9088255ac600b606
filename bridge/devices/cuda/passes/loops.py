# SPDX-License-Identifier: Apache-2.0
"""What no schedule rule takes, kernels written as statements (te.extern), given to threads.

A loop whose rounds do not depend on each other (INDEPENDENT, or parallel) has a thread a round. Every other statement
runs in one thread, as it would on a processor: right, and slow. Ops of which large kernels would be such are left to
ATen (ops/library.py).
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from ....attributes import INDEPENDENT, LIBRARY_CALL
from ....compile.kernel_pass import kernel_pass
from ....compile.schedule.analysis import collect, with_block_body
from ..schedule.threads import THREADS

Stmt = Any


def give_threads() -> Any:
    """The pass. What runs in threads already stays as it is."""
    return kernel_pass("GiveThreads", _given)


def _given(function: tirx.PrimFunc) -> tirx.PrimFunc:
    if LIBRARY_CALL in (function.attrs or {}):
        return function
    return function.with_body(_bound(function.body))


def _bound(stmt: Stmt) -> Stmt:
    if isinstance(stmt, s_tir.SBlockRealize) and not stmt.block.iter_vars:
        return with_block_body(stmt, _bound(stmt.block.body))
    if isinstance(stmt, tirx.SeqStmt) and all(_is_nest(child) for child in stmt.seq):
        return tirx.stmt_seq(*map(_bound, stmt.seq))
    if _has_threads(stmt):
        return stmt
    stmt = _in_registers(stmt)
    if isinstance(stmt, tirx.For) and (depth := _independent(stmt)):
        return _each_round(stmt, depth)
    return _over("blockIdx.x", _over("threadIdx.x", stmt))


def _is_nest(stmt: Stmt) -> bool:
    return isinstance(stmt, tirx.For | s_tir.SBlockRealize)


def _has_threads(stmt: Stmt) -> bool:
    return any(loop.kind == tirx.ForKind.THREAD_BINDING for loop in collect(stmt, tirx.For))


def _independent(loop: Any) -> int:
    """How many loops from this one on have independent rounds and nothing between them."""
    marked = loop.annotations.get(INDEPENDENT) if loop.annotations else None
    if marked is None:
        return 1 if loop.kind == tirx.ForKind.PARALLEL else 0
    depth, body = 1, loop.body
    while depth < int(marked) and isinstance(body, tirx.For):
        depth, body = depth + 1, body.body
    return depth


def _each_round(loop: Any, depth: int) -> Stmt:
    """A thread for each round of `depth` nested loops, numbered row-major."""
    nest = [loop]
    while len(nest) < depth:
        nest.append(nest[-1].body)
    body = nest[-1].body
    block, thread = (tirx.Var(name, "int64") for name in ("block", "thread"))
    number = block * tirx.const(THREADS, "int64") + thread
    count: Any = tirx.const(1, "int64")
    for one in nest:
        count = count * one.extent.astype("int64")
    values: dict[Any, Any] = {}
    rest: Any = number
    for one in reversed(nest[1:]):
        values[one.loop_var] = (tirx.floormod(rest, one.extent.astype("int64")) + one.min).astype(_dtype(one.loop_var))
        rest = tirx.floordiv(rest, one.extent.astype("int64"))
    values[nest[0].loop_var] = (rest + nest[0].min).astype(_dtype(nest[0].loop_var))
    body = tvm_ffi.structural_map(body, (tirx.Var, lambda var: values.get(var, var)))
    body = tirx.IfThenElse(number < count, body, None)
    blocks = tirx.floordiv(count + tirx.const(THREADS - 1, "int64"), tirx.const(THREADS, "int64"))
    return _over("blockIdx.x", _over("threadIdx.x", body, thread, tirx.const(THREADS, "int64")), block, blocks)


def _over(tag: str, body: Stmt, var: Any = None, extent: Any = None) -> Stmt:
    """A loop over blocks or threads; over one where nothing else is said."""
    var = tirx.Var(tag.replace(".", "_"), "int64") if var is None else var
    extent = tirx.const(1, "int64") if extent is None else extent
    zero = tirx.const(0, "int64")
    thread = tirx.IterVar(None, tirx.Var(tag, "int64"), tirx.IterVar.ThreadIndex, tag)
    return tirx.For(var, zero, extent, tirx.ForKind.THREAD_BINDING, body, thread, {})


def _dtype(var: Any) -> str:
    return str(var.ty.dtype)


def _in_registers(stmt: Stmt) -> Stmt:
    """With the scalars of a program (importer/compute/program.py) as local memory of a thread."""
    scalars = {found.buffer for found in collect(stmt, tirx.AllocBuffer)}
    if not scalars:
        return stmt
    local = {buffer: _local(buffer) for buffer in scalars}
    return tvm_ffi.structural_map(stmt, (tirx.Var, lambda var: local.get(var, var)))


def _local(buffer: Any) -> Any:
    return tirx.decl_buffer(list(buffer.ty.shape), str(buffer.ty.dtype), buffer.name, scope="local")


def check_on_the_device() -> Any:
    """The pass that has the checks of a kernel (compute/checks.py) stop it, as ATen's stop its own."""

    def checked(check: Any) -> Any:
        return tirx.IfThenElse(tirx.Not(check.condition), tirx.Evaluate(tirx.call_extern("int32", "__trap")), None)

    def change(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
        return kernel.with_body(tvm_ffi.structural_map(kernel.body, (tirx.AssertStmt, checked)))

    return kernel_pass("CheckOnTheDevice", change)
