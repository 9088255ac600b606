# SPDX-License-Identifier: Apache-2.0
"""Many tensors one behind the other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from .index import loops
from .layout import const


def stacked(*tensors: te.Tensor) -> te.Tensor:
    """`torch.cat(tensors)` of one dtype and at least one dim: the tensors copied one by one.

    An expression would ask for every element which tensor it comes from.
    """
    starts = list(itertools.accumulate((t.shape[0] for t in tensors), initial=const(0)))

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        copies = []
        for place, source in enumerate(ins):
            index: list[Any] = []
            with IRBuilder() as copy, loops(source.shape, index, independent=True):
                row, *others = index
                at = [row + starts[place], *others]
                T.buffer_store(outs[0], tirx.BufferLoad(source, index), at)
            copies.append(copy.get())
        return tirx.stmt_seq(*copies)

    shape = (starts[-1], *tensors[0].shape[1:])
    return te.extern([shape], list(tensors), body, name="stacked", dtype=str(tensors[0].dtype))
