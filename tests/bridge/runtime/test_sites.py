# SPDX-License-Identifier: Apache-2.0
"""Calls from the compiled graph into ops whose shape function says another thing than the op does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from relaxgrad.bridge.backend import relaxgrad
from relaxgrad.bridge.errors import RelaxgradError


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    """The op `relaxgrad_test::parts(x)`: (x * 2 in float64, the first element); its shape function: both like x."""
    lib = torch.library.Library("relaxgrad_test", "DEF")
    lib.define("parts(Tensor x) -> (Tensor, Tensor)")
    lib.impl("parts", lambda x: ((x * 2).double(), x[:1].clone()), "CPU")
    lib.impl("parts", lambda x: (torch.empty_like(x), torch.empty_like(x)), "Meta")
    yield lib
    lib._destroy()


def _compiled(function: Callable[[Tensor], Tensor], dynamic: bool) -> Callable[[Tensor], Tensor]:
    torch._dynamo.reset()
    return torch.compile(function, backend=relaxgrad, fullgraph=True, dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
def test_another_dtype_is_converted_and_an_unread_output_is_not_looked_at(
    library: torch.library.Library, dynamic: bool
) -> None:
    compiled = _compiled(lambda x: torch.ops.relaxgrad_test.parts(x)[0] + 1, dynamic)
    for size in (3, 5):
        x = torch.randn(size)
        result = compiled(x)
        assert result.dtype is torch.float32
        assert torch.equal(result, x * 2 + 1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_another_size_is_an_error_that_names_the_op(library: torch.library.Library, dynamic: bool) -> None:
    compiled = _compiled(lambda x: torch.ops.relaxgrad_test.parts(x)[1] + 1, dynamic)
    with pytest.raises(RelaxgradError, match=r"parts.* of size \(1,\) where its shape function says \(3,\).*disable"):
        compiled(torch.randn(3))
