# SPDX-License-Identifier: Apache-2.0
"""The ops whose result is a view of their first argument."""

from __future__ import annotations

from .registry import overload

_NAMES = (
    "alias", "detach", "view", "_unsafe_view", "_reshape_alias", "reshape", "permute", "t", "transpose.int", "expand",
    "unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims", "slice.Tensor", "select.int", "diagonal", "as_strided",
    "split.Tensor", "split_with_sizes", "unbind.int", "unfold", "narrow", "chunk", "lift_fresh", "movedim.int",
)  # fmt: skip

#: See Note [Storages and strided views] in layouts.py.
VIEW_OPS = frozenset(
    op for name in _NAMES if (op := overload(f"aten.{name}" if "." in name else f"aten.{name}.default")) is not None
)
