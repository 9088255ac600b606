# SPDX-License-Identifier: Apache-2.0
"""`pytest -p tests.bridge.devices.cuda.emulator.plugin`: every graph of the tests is compiled for the emulated GPU."""

from __future__ import annotations

import pytest

from relaxgrad.bridge.device import devices
from tests.bridge.devices.cuda.emulator import DEVICE

devices().clear()
devices()[DEVICE.name] = DEVICE

_CHECK = "a check that fails stops the kernel, as ATen's do on a GPU: no type of exception and no text comes back"
_ATEN = "left to ATen on a GPU, whose own checks and words these are"
#: Test -> why it says nothing of a GPU, and is left out.
_LEFT_OUT = {
    "test_index.py::test_an_index_out_of_range_raises_and_the_next_call_works[5]": _CHECK,
    "test_index.py::test_an_index_out_of_range_raises_and_the_next_call_works[-6]": _CHECK,
    "test_index.py::test_a_bad_index_of_a_write_raises": _ATEN,
    "test_pointwise.py::test_integer_division_by_zero_raises_and_the_process_lives": _CHECK,
    "test_scatter.py::test_masked_scatter_of_too_few_values_raises": _ATEN,
    "test_scatter.py::test_scatter_reduce_of_an_index_out_of_range_raises": _ATEN,
    "test_segment.py::test_bounds_that_do_not_fit_raise[given2-sum]": _ATEN,
    "test_segment.py::test_bounds_that_do_not_fit_raise[given3-ascend]": _ATEN,
    "test_segment.py::test_bounds_that_do_not_fit_raise[given4-ascend]": _ATEN,
    "test_segment.py::test_bounds_that_do_not_fit_raise[given5-ascend]": _ATEN,
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if item.nodeid.endswith(tuple(_LEFT_OUT))]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
