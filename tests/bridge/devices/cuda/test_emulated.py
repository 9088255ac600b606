# SPDX-License-Identifier: Apache-2.0
"""Graphs compiled for a GPU and run by the emulator, in a process where no other device is."""

from __future__ import annotations

import pytest

from tests.bridge.devices.process import run_python

PROGRAM = """
import torch
import torch.nn.functional as F
import tests.bridge.devices.cuda.emulator.plugin
from relaxgrad.bridge.kinds import Kind
from tests.bridge.devices.cuda import emulator
from tests.bridge.importer.harness import run_test

emulator.sources = []
both = {Kind.NATIVE, Kind.LIBRARY}

def block(x, w, scale, shift, index):
    x = F.layer_norm(x + F.gelu(x @ w), (96,), scale, shift)
    return F.cross_entropy(x, index) + F.embedding(index, w).softmax(-1).sum(0).mean()

given = torch.randn(20, 96), torch.randn(96, 96), torch.randn(96), torch.randn(96), torch.randint(0, 96, (20,))
run_test(block, *given, kinds=both)
run_test(block, *given, kinds=both, dynamic=True)
run_test(lambda x: (x * x).sum() + x.amax(), torch.randn(300, 400))  # in two kernels
run_test(lambda x: x.sum(0), torch.randn(70, 10))  # fewer columns than lanes of a warp
run_test(lambda x, y: torch.tanh(x) * y, torch.randn(512, 512), torch.randn(512))  # four elements a thread
run_test(lambda x: torch.lgamma(x) + x.double() * 1e-20, torch.rand(40, 5) + 0.5)
run_test(lambda x: F.max_pool2d(x, 3, 2, 1), torch.randn(2, 3, 9, 9))
for half in (torch.float16, torch.bfloat16):
    run_test(lambda x: F.silu(x).softmax(-1), torch.randn(6, 40).to(half))
tanh = torch.compile(lambda x: torch.tanh(x) + 1, backend="relaxgrad", dynamic=True)
assert tanh(torch.randn(3, 4)).shape == (3, 4) and tanh(torch.randn(0, 4)).shape == (0, 4)  # a launch of no blocks
text = "".join(emulator.sources)
words = "float4", "__shfl_down_sync", "__syncthreads", "__longlong_as_double", "__trap"
print(*[word for word in words if word in text])
"""


def test_layers_train_on_the_emulated_gpu() -> None:
    done = run_python("-c", PROGRAM)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["float4", "__shfl_down_sync", "__syncthreads", "__longlong_as_double", "__trap"]


@pytest.mark.slow  # the importer's tests, once more: 6 minutes
def test_the_importers_tests_pass_on_the_emulated_gpu() -> None:
    plugins = ("-p", "tests.bridge.devices.cuda.emulator.plugin", "-p", "no:cacheprovider")
    done = run_python("-m", "pytest", "-q", "-n", "2", *plugins, "tests/bridge/importer")
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


PLANTED = """
import re
import torch
import tests.bridge.devices.cuda.emulator.plugin
import relaxgrad.bridge.backend
from tests.bridge.devices.cuda.emulator import source

rewrite, softmax, x = source.rewrite, torch.nn.functional.softmax, torch.randn(40, 300)
left_out, count = (), 0

def planted(text, launch):
    global count
    parts = re.split(r"(__syncthreads\\(\\);)", text)
    count = len(parts) // 2
    return rewrite("".join(p for k, p in enumerate(parts) if k % 2 == 0 or k // 2 not in left_out), launch)

def outcome(*numbers):
    global left_out
    left_out = numbers
    torch.compiler.reset()
    try:
        y = torch.compile(lambda x: softmax(x, -1), backend="relaxgrad")(x)
    except RuntimeError as error:
        return str(error).split(":")[0]
    return "right" if torch.allclose(y, softmax(x, -1), atol=1e-6) else "wrong"

source.rewrite = planted
print(outcome(), outcome(*range(count)), *(outcome(number) for number in range(count)))
"""


def test_a_barrier_that_a_softmax_needs_cannot_be_left_out() -> None:
    """Of TVM's own source: all barriers at once, and one at a time. Those that nothing needs leave it right."""
    done = run_python("-c", PLANTED)
    assert done.returncode == 0, done.stderr[-3000:]
    whole, without, *each = done.stdout.split()
    assert whole == "right"
    assert without in ("race", "uninitialised")
    assert len(each) >= 4
    assert set(each) <= {"race", "uninitialised", "right"}
    assert {"race", "uninitialised"} <= set(each)
