# SPDX-License-Identifier: Apache-2.0
"""Each `_foreach_*` decomposition gives what the op itself gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from relaxgrad.bridge.capture.foreach import foreach_decompositions

TABLE = foreach_decompositions()


def _argument(argument: Any, number: int) -> Any:
    kind = str(argument.type)
    if kind == "List[Tensor]":
        return [torch.rand(3) + number + 0.1, torch.rand(2, 2) + number + 0.1]
    if kind == "Tensor":
        return torch.tensor(0.5)
    return [0.5, 0.75] if kind.startswith("List") else 2.0


@pytest.mark.parametrize("op", TABLE, ids=str)
def test_gives_what_the_op_gives(op: Any) -> None:
    required = [
        a for a in op._schema.arguments if not a.kwarg_only and (not a.has_default_value() or a.name == "value")
    ]
    args = [_argument(a, i) for i, a in enumerate(required)]
    torch.testing.assert_close(TABLE[op](*args), list(op(*args)))


def test_the_ops_of_optimizers_are_covered() -> None:
    aten = torch.ops.aten
    assert {aten._foreach_add.List, aten._foreach_addcdiv.ScalarList, aten._foreach_pow.ScalarAndTensor} <= TABLE.keys()
