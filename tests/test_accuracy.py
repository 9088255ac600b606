# SPDX-License-Identifier: Apache-2.0
"""What the tests hold values to: the float64 rule, which notices an error that is a few times eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.accuracy import as_accurate
from tests.bridge.regressions import Compile, Program, agree


def test_an_error_beyond_eagers_is_found() -> None:
    exact = torch.linspace(1, 2, 8, dtype=torch.float64)
    eager = exact.float()
    as_accurate([exact], [eager], [eager * (1 + 3e-7)])
    as_accurate({"none": exact * 0}, {"none": eager * 0}, {"none": eager * 0})  # eager's to the bit
    with pytest.raises(AssertionError, match="less accurate than eager"):
        as_accurate([exact], [eager], [eager * (1 + 3e-6)])
    with pytest.raises(AssertionError, match="error too large"):
        as_accurate([exact], [eager], [eager * (1 + 3e-5)])


def program(dtype: torch.dtype, off: float) -> Program:
    """Shows a value that is `off` when compiled."""

    def shown(compile: Compile) -> dict[str, Any]:
        def f(x: torch.Tensor) -> torch.Tensor:
            return x.sin() * 2

        run = compile(f)
        y = run(torch.linspace(1, 2, 8).to(dtype))
        return {"y": y if run is f else y * (1 + off)}

    return shown


def test_a_program_that_is_off_fails() -> None:
    agree(program(torch.float32, 0.0))
    with pytest.raises(AssertionError, match=r"\['y'\]: less accurate than eager"):
        agree(program(torch.float32, 3e-6))


def test_the_floor_of_halves_forgives_nothing() -> None:
    exact = program(torch.float64, 0.0)
    agree(program(torch.bfloat16, 0.0), exact=exact)
    with pytest.raises(AssertionError, match=r"\['y'\]: .* by the floor alone"):
        agree(program(torch.bfloat16, 0.03), exact=exact)
