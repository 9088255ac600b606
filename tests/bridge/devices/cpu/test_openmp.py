# SPDX-License-Identifier: Apache-2.0
"""The function that starts a parallel loop on OpenMP's threads: every piece runs once, and one that fails is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from relaxgrad.bridge.compile.cache.link import export
from relaxgrad.bridge.device import host
from relaxgrad.bridge.devices.cpu.openmp import join_openmp
from relaxgrad.bridge.targets import resolve_target

SIZE = 1000


@pytest.fixture(params=[1, 2, 7], ids="{} threads".format)
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A library whose kernel copies 1,000 numbers in parallel, all of which must be below ten."""

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        with IRBuilder() as builder, T.parallel(0, SIZE) as i:
            value = tirx.BufferLoad(ins[0], [i])
            with T.Assert(value < 10, "ten or more", "RuntimeError"):
                T.buffer_store(outs[0], value, [i])
        return builder.get()

    x = te.placeholder((SIZE,), "int32", name="x")
    y = te.extern([(SIZE,)], [x], body, name="copy", dtype="int32")
    export(tvm.compile(te.create_prim_func([x, y]), target=resolve_target("llvm")), tmp_path / "copy.so", host())
    library = tvm_ffi.load_module(str(tmp_path / "copy.so"))
    assert join_openmp(tmp_path / "copy.so")
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield library["main"]
    torch.set_num_threads(before)


def test_every_piece_runs(kernel: Any) -> None:
    x, y = torch.arange(SIZE, dtype=torch.int32) % 10, torch.full((SIZE,), -1, dtype=torch.int32)
    kernel(x, y)
    assert torch.equal(x, y)


@pytest.mark.parametrize("place", [0, SIZE // 2, SIZE - 1])
def test_a_piece_that_fails_raises_in_the_thread_that_called(kernel: Any, place: int) -> None:
    """TVM's own pool loses the error of the starting thread's piece (docs/upstream.md)."""
    x, y = torch.zeros(SIZE, dtype=torch.int32), torch.zeros(SIZE, dtype=torch.int32)
    x[place] = 10
    with pytest.raises(RuntimeError, match="ten or more"):
        kernel(x, y)
    x[place] = 3
    kernel(x, y)
    assert torch.equal(x, y)
