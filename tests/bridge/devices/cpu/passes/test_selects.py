# SPDX-License-Identifier: Apache-2.0
"""Selections stay selections: no branch for each element, in any loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import tvm
from tvm import te, tirx

from relaxgrad.bridge.devices.cpu.passes.selects import keep_selects
from tests.bridge.compile.kernels import build

SHAPE = (6, 50)


def positive(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    zero = tirx.const(0, str(x.dtype))
    return te.compute(x.shape, lambda *i: tirx.Select(x(*i) > zero, y(*i), x(*i) + y(*i)), name="chosen")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64, torch.int8])
@pytest.mark.parametrize("schedule", [False, True], ids=["loops", "lanes"])
def test_values(dtype: torch.dtype, schedule: bool) -> None:
    x, y = (torch.randint(-9, 9, SHAPE).to(dtype) for _ in range(2))
    (found,), _ = build(positive, x, y, schedule=schedule)
    assert torch.equal(found, torch.where(x > 0, y, x + y))


def test_nothing_but_selections_that_read_is_changed() -> None:
    def numbers(x: te.Tensor) -> te.Tensor:
        one, two = (tirx.const(v, "float32") for v in (1.0, 2.0))
        return te.compute(x.shape, lambda *i: tirx.Select(x(*i) > one, one, two), name="numbers")

    x = te.placeholder(SHAPE, "float32", name="x")
    module = tvm.IRModule({"main": te.create_prim_func([x, numbers(x)])})
    assert "T.Select" in str(keep_selects()(module)["main"].script())


def test_a_loop_of_selections_becomes_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine code of a loop without lanes of ours: LLVM could not make vectors of branches."""
    sources: list[str] = []
    original: Any = tvm.compile

    def compile_and_look(*args: Any, **kwargs: Any) -> Any:
        library = original(*args, **kwargs)
        sources.append(library.mod.inspect_source("ll"))
        return library

    monkeypatch.setattr(tvm, "compile", compile_and_look)
    x, y = torch.randn(SHAPE), torch.randn(SHAPE)
    build(positive, x, y, schedule=False)
    assert " = select <" in sources[0]
