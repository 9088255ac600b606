# SPDX-License-Identifier: Apache-2.0
"""How a list of schedule rules is tried on a kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from tvm import te, tirx
from tvm.error import InternalError
from tvm.s_tir.schedule import ScheduleError
from tvm_ffi.structural import structural_equal

from relaxgrad.bridge.compile.schedule import apply_rules
from relaxgrad.bridge.compile.schedule.analysis import has_root
from relaxgrad.bridge.compile.schedule.kernel import analysed
from relaxgrad.bridge.importer.compute import norm
from relaxgrad.bridge.targets import resolve_target

TARGET = resolve_target("llvm")


class Given:
    """A rule that calls a function, and keeps what it was given."""

    name = "given"

    def __init__(self, function: Callable[[tirx.PrimFunc], tirx.PrimFunc | None]):
        self.function = function
        self.seen: list[tirx.PrimFunc] = []

    def apply(self, function: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
        self.seen.append(function)
        return self.function(function)


def softmax() -> tirx.PrimFunc:
    x = te.placeholder((4, 64), name="x")
    return te.create_prim_func([x, norm.softmax(x, 1, "float32", "float64", "float32")], index_dtype_override="int64")


def refused(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Splits a loop and decomposes a reduction before TVM refuses to inline the output."""
    sch = analysed(function).with_temporaries.schedule()
    first, *_, last = sch.blocks()
    sch.vectorize(sch.split(sch.get_loops(last)[-1], [None, 16])[1])
    sch.decompose_reduction(first, sch.get_loops(first)[-1])
    sch.compute_inline(last)
    return sch.function


def failed(_: tirx.PrimFunc) -> tirx.PrimFunc:
    raise InternalError("a check of TVM's")


@pytest.mark.parametrize("first", [refused, failed, lambda function: None], ids=["refused", "failed", "another kind"])
def test_the_next_rule_gets_the_kernel_as_it_was(first: Callable[[tirx.PrimFunc], tirx.PrimFunc | None]) -> None:
    kernel = softmax()
    before, blocks = kernel.script(), len(analysed(kernel).with_temporaries.blocks)
    second = Given(lambda function: analysed(function).with_temporaries.schedule().function)
    third = Given(lambda function: function)
    made = apply_rules(kernel, [Given(first), second, third], TARGET)
    assert second.seen[0].same_as(kernel)
    assert kernel.script() == before
    assert structural_equal(made, second.function(softmax()), map_free_vars=True)
    assert len(analysed(kernel).with_temporaries.blocks) == blocks
    assert third.seen == []


def test_the_last_refusal_is_raised_where_no_rule_is_left() -> None:
    with pytest.raises(ScheduleError):
        apply_rules(softmax(), [Given(failed), Given(refused), Given(lambda function: None)], TARGET)


def test_a_kernel_of_no_kind_stays_as_it_is() -> None:
    kernel = softmax()
    assert apply_rules(kernel, [Given(lambda function: None)], TARGET).same_as(kernel)


def test_a_kernel_that_is_scheduled_already_is_shown_to_no_rule() -> None:
    function = softmax()
    below = function.with_body(function.body.block.body)
    assert not has_root(below)
    rule = Given(failed)
    assert apply_rules(below, [rule], TARGET).same_as(below)
    assert rule.seen == []
