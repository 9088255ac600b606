# SPDX-License-Identifier: Apache-2.0
"""TVM's schedule of one function, called without what TVM adds to each call.

Note [Unchecked]
TVM holds the arguments of every method of a schedule against its annotations, in Python: 46 us of the 47 that `get`
takes, and a kernel is asked some hundred things. A primitive that TVM refuses prints the whole function into its
message, which is not read here: a rule that is refused makes way for the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, s_tir, tirx

#: TVM's variables of a schedule, for a block and for a loop.
BlockRV = Any
LoopRV = Any


def _unchecked(name: str) -> Callable[..., Any]:
    """A method that calls TVM's of this name, without the check around it: see Note [Unchecked]."""
    checked = getattr(s_tir.Schedule, name)
    method = getattr(checked, "__wrapped__", checked)

    def call(self: Schedule, *args: Any, **options: Any) -> Any:
        return method(self._schedule, *args, **options)

    call.__name__, call.__doc__ = name, checked.__doc__
    return call


class Schedule:
    """The loops and blocks of `function`; each method is TVM's `s_tir.Schedule`'s of its name, and raises the same."""

    def __init__(self, function: tirx.PrimFunc):
        self._schedule = s_tir.Schedule(ir.IRModule({"main": function}), error_render_level="fast")

    @property
    def function(self) -> tirx.PrimFunc:
        """The function as it is now."""
        return self._schedule.mod["main"]

    def copy(self) -> Schedule:
        """A schedule of its own, in which this one's blocks and loops have their names."""
        copied = object.__new__(Schedule)
        copied._schedule = self._schedule.copy()
        return copied

    def adopt(self, copied: Schedule) -> None:
        """Goes on as a copy of this schedule, on which primitives were tried."""
        self._schedule = copied._schedule

    def blocks(self) -> list[BlockRV]:
        """The blocks below the root block."""
        return list(self.get_child_blocks(self.get_sblock("root")))

    def extent(self, loop: LoopRV) -> int | None:
        """The extent of a loop; None where it is symbolic."""
        extent = self.get(loop).extent
        return int(extent) if isinstance(extent, tirx.IntImm) else None

    get = _unchecked("get")
    get_sblock = _unchecked("get_sblock")
    get_child_blocks = _unchecked("get_child_blocks")
    get_consumers = _unchecked("get_consumers")
    get_loops = _unchecked("get_loops")
    add_unit_loop = _unchecked("add_unit_loop")
    annotate = _unchecked("annotate")
    bind = _unchecked("bind")
    cache_write = _unchecked("cache_write")
    compute_inline = _unchecked("compute_inline")
    decompose_reduction = _unchecked("decompose_reduction")
    fuse = _unchecked("fuse")
    parallel = _unchecked("parallel")
    reorder = _unchecked("reorder")
    rfactor = _unchecked("rfactor")
    set_scope = _unchecked("set_scope")
    split = _unchecked("split")
    unroll = _unchecked("unroll")
    vectorize = _unchecked("vectorize")
