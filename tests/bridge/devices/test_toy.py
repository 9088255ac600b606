# SPDX-License-Identifier: Apache-2.0
"""A second device in the place of the first: nothing outside of its folder knows that it is another one."""

from __future__ import annotations

import pytest

from tests.bridge.devices.process import run_python

PROGRAM = """
import torch
import tests.bridge.devices.toy.plugin
from relaxgrad.bridge.device import device_of, devices
from relaxgrad.bridge.kinds import Kind
from tests.bridge.importer.harness import run_test

def model(x, w, v):
    return torch.nn.functional.gelu(torch.bmm(torch.tanh(x @ w)[None], v)).softmax(-1)

given = torch.randn(5, 7), torch.randn(7, 3), torch.randn(1, 3, 4)
for dynamic in (None, True):
    records = run_test(model, *given, dynamic=dynamic, kinds={Kind.NATIVE}, ops=["aten.bmm.default"])
empty = torch.randn(3, 0), torch.randn(0, 2)  # the toy leaves such a product to ATen
run_test(lambda x, y: torch.mm(x, y) + 1, *empty, grad=False, kinds={Kind.NATIVE, Kind.LIBRARY})
print(*devices(), *sorted(op for r in records for op in r.ops if "mm" in op))
"""


def test_a_model_trains_on_the_products_of_a_toy() -> None:
    done = run_python("-c", PROGRAM)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["cpu", *["aten.bmm.default"] * 2, *["aten.mm.default"] * 2]


@pytest.mark.slow  # the importer's tests, once more
def test_the_importers_tests_pass_on_a_toy() -> None:
    plugins = ("-p", "tests.bridge.devices.toy.plugin", "-p", "no:cacheprovider")
    done = run_python("-m", "pytest", "-q", *plugins, "tests/bridge/importer")
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
