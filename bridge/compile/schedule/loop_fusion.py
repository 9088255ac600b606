# SPDX-License-Identifier: Apache-2.0
"""One nest of loops around the blocks of a kernel, each of which has been scheduled by itself."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from .analysis import nests, with_block_body


def fuse_loops(function: tirx.PrimFunc, depth: int, scalar_blocks: Collection[str] = ()) -> tirx.PrimFunc:
    """One nest of `depth` loops around what the nests of all blocks have below as many loops; those of `scalar_blocks`
    (names) come before it.

    TVM's own moves (reverse_compute_at) compute which elements of a row a block would need, and lose its predicate.
    """
    every = nests(function)
    before = [nest for nest in every if _block_of(nest) in scalar_blocks]
    around: list[Any] = []
    bodies: list[Any] = []
    for nest in every:
        if _block_of(nest) in scalar_blocks:
            continue
        own: list[Any] = []
        for _ in range(depth):
            own.append(nest)
            nest = nest.body
        around = around or own
        same = {ours.loop_var: first.loop_var for ours, first in zip(own, around, strict=True)}
        bodies.append(tvm_ffi.structural_map(nest, (tirx.Var, lambda var, same=same: same.get(var, var))))
    body = tirx.stmt_seq(*bodies)
    for loop in reversed(around):
        body = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations)
    body = tirx.stmt_seq(*before, body)
    return function.with_body(with_block_body(function.body, body))


def _block_of(nest: Any) -> str:
    """The name of the block below a nest of loops; empty where there are several."""
    while isinstance(nest, tirx.For):
        nest = nest.body
    return str(nest.block.name_hint) if isinstance(nest, s_tir.SBlockRealize) else ""
