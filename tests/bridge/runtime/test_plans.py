# SPDX-License-Identifier: Apache-2.0
"""The importer's plans as functions: views of inputs and results, numbers computed once a call, layouts copied."""

from __future__ import annotations

import pytest
import torch
import tvm_ffi

from relaxgrad.bridge.plan import FromConstant, FromFunction, FromInput, FromScalar, ScalarRef, Strided
from relaxgrad.bridge.runtime.extern_calls import for_vm, memory_order
from relaxgrad.bridge.runtime.plans import OpaqueObject, numbers, output_reader, viewer


def test_numbers_mix_constants_and_references() -> None:
    assert numbers([1, ScalarRef(1), 2.5, ScalarRef(0)])((7, 8)) == (1, 8, 2.5, 7)
    assert numbers([3, 4])(()) == (3, 4)
    assert numbers([ScalarRef(0)])((9,)) == (9,)


def test_outputs_that_are_values() -> None:
    assert output_reader(FromConstant(None))([], [], ()) is None
    assert output_reader(FromScalar(ScalarRef(1)))([], [], (4, 5)) == 5
    x = torch.ones(2)
    assert output_reader(FromInput(1))([None, x], [], ()) is x
    assert output_reader(FromFunction(0))([], [x], ()) is x
    assert output_reader(FromFunction(0, opaque=True))([], [OpaqueObject("state")], ()) == "state"


@pytest.mark.parametrize("symbolic", [False, True])
def test_a_view_of_an_input_counts_from_its_first_element(symbolic: bool) -> None:
    storage = torch.arange(20.0)
    tensor = storage[4:]
    size = (ScalarRef(0), 2) if symbolic else (3, 2)
    plan = FromInput(0, Strided(size, (2, 1), 1))
    view = output_reader(plan)([tensor], [], (3,))
    assert view.tolist() == [[5, 6], [7, 8], [9, 10]]
    assert view.untyped_storage().data_ptr() == storage.untyped_storage().data_ptr()


def test_a_view_of_a_result_counts_from_its_storage() -> None:
    view = viewer(Strided((2, 2), (1, 2), ScalarRef(0)))(torch.arange(6.0), (1,))
    assert view.tolist() == [[1, 3], [2, 4]]


def test_a_layout_that_no_view_has_is_copied() -> None:
    value = torch.arange(6.0).view(2, 3)
    plan = FromFunction(0, Strided((2, 3), (8, 2)), relayout=True)
    found = output_reader(plan)([], [value], ())
    assert found.stride() == (8, 2)
    assert found.tolist() == value.tolist()
    expanded = output_reader(FromFunction(0, Strided((2, 3), (0, 1)), relayout=True))([], [value[:1].expand(2, 3)], ())
    assert expanded.stride() == (0, 1)
    assert expanded.tolist() == [[0, 1, 2], [0, 1, 2]]


def test_tensors_for_the_machine() -> None:
    x = torch.randn(2, 3, 4)
    assert for_vm(x, None) is x
    permuted = x.permute(2, 0, 1)
    assert for_vm(permuted, (1, 2, 0)).data_ptr() == x.data_ptr()
    assert for_vm(permuted, (1, 2, 0)).is_contiguous()
    assert for_vm(permuted, None).data_ptr() != x.data_ptr()
    needs_grad = torch.randn(2, 3, requires_grad=True)
    assert not for_vm(needs_grad.t(), None).requires_grad  # a copy that is no part of autograd's graph
    crossed = tvm_ffi.get_global_func("testing.echo")(for_vm(needs_grad, None))
    assert crossed.data_ptr() == needs_grad.data_ptr()
    assert not crossed.requires_grad
    negated = torch._neg_view(x)
    assert not for_vm(negated, None).is_neg()
    torch.testing.assert_close(for_vm(negated, None), -x)
    assert for_vm(torch.empty(2, 0, 3), None).stride() == (0, 3, 1)


def test_an_order_that_permutes_nothing_is_none() -> None:
    assert memory_order((0, 1, 2)) is None
    assert memory_order(None) is None
    assert memory_order((1, 0)) == (1, 0)
