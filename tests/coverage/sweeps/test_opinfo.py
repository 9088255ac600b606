# SPDX-License-Identifier: Apache-2.0
"""PyTorch's operator database as a sweep: what it holds, that samples repeat, and a quick part of it checked."""

from __future__ import annotations

import pytest
import torch

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.sweeps import opinfo
from relaxgrad.coverage.sweeps.check import GOOD, Status, check_call

# Entries of every family, cheap to compile; the sweep of all of them is `relaxgrad audit --opinfo`.
QUICK = (
    "add", "div.floor_rounding", "nn.functional.gelu", "where", "sum", "var", "amax", "cumsum", "sort", "gather",
    "index_put", "nn.functional.embedding", "cat", "expand", "nn.functional.pad.reflect", "nn.functional.conv2d",
    "linalg.multi_dot", "nn.functional.layer_norm", "nn.functional.batch_norm", "nn.functional.cross_entropy",
    "nn.functional.dropout", "linalg.inv",
)  # fmt: skip


def test_the_float32_sweep_is_the_whole_differentiable_database() -> None:
    names = opinfo.entry_names("float32")
    assert len(names) == len(set(names)) == 540
    assert {"nn.functional.max_pool2d", "div.floor_rounding", "linalg.svd"} <= set(names)
    assert "eq" not in names  # has no gradient
    assert "eq" in opinfo.entry_names("int64")


@pytest.mark.slow
def test_the_float32_sweep_has_14106_samples() -> None:
    sweep = opinfo.Sweep({"dtype": "float32"})
    assert sum(len(sweep.samples(name)) for name in sweep.entries()) == 14106


def test_an_op_means_all_its_variants_and_a_typo_gets_a_hint() -> None:
    assert opinfo.entry_names("float32", ["div"]) == [
        "div.no_rounding_mode",
        "div.trunc_rounding",
        "div.floor_rounding",
    ]
    with pytest.raises(UserError, match=r"no entry 'softmaxx'; close: .*softmax"):
        opinfo.entry_names("float32", ["softmaxx"])
    with pytest.raises(UserError, match="svd does not take float16"):
        opinfo.entry_names("float16", ["svd"])
    with pytest.raises(UserError, match="--dtype half is unknown"):
        opinfo.entry_names("half")


def test_samples_do_not_depend_on_what_was_checked_before() -> None:
    sweep = opinfo.Sweep({"dtype": "float32"})
    torch.manual_seed(0)
    before = {number: make().call.args for number, make in sweep.samples("addmm").items()}
    torch.manual_seed(0)
    for number, make in sweep.samples("addmm").items():
        call = make().call
        call.function(*call.args, **call.kwargs)
        torch.manual_seed(99)
        assert all(torch.equal(a, b) for a, b in zip(call.args, before[number], strict=True))
    limited = opinfo.Sweep({"dtype": "float32", "samples": 2}).samples("addmm")
    assert list(limited) == [1, 4]


def test_a_half_precision_sample_asks_for_gradients_and_an_integer_one_does_not() -> None:
    half = opinfo.Sweep({"dtype": "bfloat16"}).samples("mul")[0]().call
    assert half.args[0].dtype is torch.bfloat16
    assert half.args[0].requires_grad
    assert not opinfo.Sweep({"dtype": "int64"}).samples("mul")[0]().call.args[0].requires_grad


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_part_of_the_database_passes(name: str) -> None:
    torch.manual_seed(0)
    samples = opinfo.Sweep({"dtype": "float32"}).samples(name)
    call = samples[len(samples) // 2]().call
    checked = check_call(call)
    assert checked.status in GOOD, checked.detail
    if call.backward and checked.status is Status.PASS:
        assert checked.backward
    assert "verified" in checked.outputs.values() or checked.status is Status.VACUOUS


@pytest.mark.parametrize("name", ["mul", "sum", "softmax", "addmm"])
def test_symbolic_sizes_are_exercised(name: str) -> None:
    torch.manual_seed(0)
    samples = opinfo.Sweep({"dtype": "float32"}).samples(name)
    checked = check_call(samples[len(samples) // 2]().call, dynamic=True)
    assert checked.status is Status.PASS, checked.detail
    assert checked.symbolic
    assert checked.sizes == 2
