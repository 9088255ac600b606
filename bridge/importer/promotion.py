# SPDX-License-Identifier: Apache-2.0
"""ATen's type promotion (c10/core/ScalarType.h, TensorIterator): dimensions, then 0-d tensors, then Python numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .values import SymbolicNumber, TensorValue

_FROM_TVM = {
    "float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64,
    "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64, "uint8": torch.uint8,
    "bool": torch.bool,
}  # fmt: skip


def result_type(values: Sequence[Any]) -> torch.dtype:
    """The common dtype of an element-wise op over these operands, as `torch.result_type` gives it."""
    dims: torch.dtype | None = None
    zero_dim: torch.dtype | None = None
    wrapped: torch.dtype | None = None
    for value in values:
        if isinstance(value, TensorValue):
            dtype = _FROM_TVM[value.dtype]
            if value.ndim:
                dims = dtype if dims is None else torch.promote_types(dims, dtype)
            else:
                zero_dim = dtype if zero_dim is None else torch.promote_types(zero_dim, dtype)
        else:
            dtype = number_type(value)
            wrapped = dtype if wrapped is None else torch.promote_types(wrapped, dtype)
    result = _combine(dims, _combine(zero_dim, wrapped))
    assert result is not None, "an op without operands"
    return result


def number_type(value: Any) -> torch.dtype:
    """The dtype that a Python number stands for."""
    kind = value.python_type if isinstance(value, SymbolicNumber) else type(value)
    if kind in (bool, torch.SymBool):
        return torch.bool
    if kind in (float, torch.SymFloat):
        return torch.get_default_dtype()
    return torch.int64


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """The higher category wins unless the lower one is of a higher kind (bool < integer < float)."""
    if higher is None or lower is None:
        return higher or lower
    if higher.is_floating_point:
        return higher
    if higher is torch.bool or lower.is_floating_point:
        return torch.promote_types(higher, lower)
    return higher
