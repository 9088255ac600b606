# SPDX-License-Identifier: Apache-2.0
"""Recorded operator calls: read without running anything, scaled down honestly, rebuilt with values that make sense."""

from __future__ import annotations

import gzip
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.sweeps import core_aten, oplogs
from relaxgrad.coverage.sweeps.check import GOOD, check_call
from relaxgrad.coverage.sweeps.oplogs import by_op, find_overload, parse, read_log
from relaxgrad.coverage.sweeps.oplogs_values import ELEMENTS, TensorSpec, build, fit, specs_in
from relaxgrad.coverage.sweeps.summary import kind_of

aten = torch.ops.aten

# -- reading ----------------------------------------------------------------------------------------------------------


def test_the_format() -> None:
    text = (
        "((T([2, 3], f16, stride=(3, 1)), [T([4], i64), None], -1, 1e-05, True, inf), "
        "{'dtype': f32, 'layout': torch.strided})"
    )
    args, kwargs = parse(text)
    assert args[0] == TensorSpec((2, 3), torch.float16, (3, 1))
    assert args[1] == [TensorSpec((4,), torch.int64), None]
    assert args[2:] == (-1, 1e-05, True, float("inf"))
    assert kwargs == {"dtype": torch.float32, "layout": torch.strided}


@pytest.mark.parametrize(
    "text", ["__import__('os').system('x')", "torch.load('x')", "T.__class__", "f99", "[i for i in (1,)]", "torch.os"]
)
def test_nothing_but_the_format_is_read(text: str) -> None:
    with pytest.raises(ValueError, match="not part of the format"):
        parse(f"(({text},), {{}})")


def test_the_built_in_log_is_whole() -> None:
    ops = by_op(oplogs.BUILT_IN)
    records = [record for found in ops.values() for record in found]
    assert len(records) == 18208
    assert sum(record.count for record in records) == 150445
    assert len({record.recorded_op for record in records}) == 180
    for record in records:
        record.arguments()
    missing = [op for op in ops if not _exists(op)]
    assert missing == [], "renamed or removed since: say so in oplogs._RENAMED"


def _exists(op: str) -> bool:
    try:
        find_overload(op)
    except LookupError:
        return False
    return True


def test_what_is_no_log_is_said(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    for text, complaint in (
        ("cnt: 1, ((), {})\n", "log.txt:1 is neither"),
        ("Operator: aten.mm.default\nhello\n", "log.txt:2 is neither"),
        ("", "no recorded calls"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=complaint):
            read_log(file)
    with pytest.raises(UserError, match="cannot read"):
        read_log(tmp_path / "none.txt")
    packed = tmp_path / "log.txt.gz"
    packed.write_bytes(gzip.compress(b"Operator: aten.sum.SymInt\ncnt: 7, ((T([3], f16), [0]), {})\n"))
    (record,) = read_log(packed)
    assert (record.op, record.recorded_op, record.count) == ("aten.sum.dim_IntList", "aten.sum.SymInt", 7)


# -- scaling and values -----------------------------------------------------------------------------------------------


def test_a_backward_is_scaled_to_a_gradient_of_its_forward() -> None:
    """Without data ATen does not ask whether a gradient has the size that the convolution or slice would give."""
    for name, text in (
        ("aten.convolution_backward.default", "((T([128, 128, 14, 14], f32), T([128, 128, 28, 28], f32), T([128, 16, "
         "3, 3], f32), [0], [2, 2], [1, 1], [1, 1], False, [0, 0], 8, [True, True, False]), {})"),
        ("aten.slice_backward.default", "((T([64, 195, 768], f32), [64, 196, 768], 1, 1, 9223372036854775807, 1), {})"),
    ):  # fmt: skip
        op = find_overload(name)
        args, kwargs = parse(text)
        fitted = fit(op, args, kwargs)
        assert elements((fitted.args, fitted.kwargs)) < elements((args, kwargs)) // 10
        values, named = build(op, fitted.args, fitted.kwargs)
        op(*values, **named)


def elements(value: Any) -> int:
    return sum(spec.numel() for spec in specs_in(value))


@pytest.mark.parametrize(
    "text",
    [
        ("aten.mm.default", "((T([8192, 768], f16), T([768, 3072], f16)), {})"),
        ("aten._unsafe_view.default", "((T([64, 128, 768], f16), [8192, 768]), {})"),
        ("aten.convolution.default", "((T([128, 256, 56, 56], f16), T([256, 8, 3, 3], f16), None, [1, 1], [1, 1], "
         "[1, 1], False, [0, 0], 32), {})"),
        ("aten.embedding_dense_backward.default", "((T([32, 512, 768], f16), T([32, 512], i64), 50257, -1, False), "
         "{})"),
        ("aten.add.Tensor", "((T([64, 512, 1024], f16, stride=(524288, 1, 512)), T([1024], f16)), {})"),
    ],
)  # fmt: skip
def test_a_large_call_is_scaled_down_and_still_runs(text: tuple[str, str]) -> None:
    op = find_overload(text[0])
    args, kwargs = parse(text[1])
    fitted = fit(op, args, kwargs)
    assert elements((args, kwargs)) > 10 * ELEMENTS
    assert elements((fitted.args, fitted.kwargs)) <= 4 * ELEMENTS
    assert fitted.changes
    assert all(new < int(old) for old, new in fitted.changes.items())
    ranks = [len(s.shape) for s in specs_in((args, kwargs))]
    assert [len(s.shape) for s in specs_in((fitted.args, fitted.kwargs))] == ranks
    built_args, built_kwargs = build(op, fitted.args, fitted.kwargs)
    op(*built_args, **built_kwargs)


def test_a_small_call_is_left_alone_and_a_stride_order_is_kept() -> None:
    args, kwargs = parse("((T([4, 8], f16, stride=(1, 4)), 2), {})")
    assert fit(aten.mul.Scalar, args, kwargs).changes == {}
    large = fit(aten.mul.Scalar, *parse("((T([4096, 1024], f16, stride=(1, 4096)), 2), {})"))
    (spec,) = specs_in(large.args)
    assert spec.stride == (1, spec.shape[0])
    (built, _), _ = build(aten.mul.Scalar, large.args, {})
    assert built.stride() == spec.stride


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("embedding.default", "((T([7, 4], f32), T([50], i64)), {})"),
        ("gather.default", "((T([3, 9], f32), 0, T([40, 9], i64)), {})"),
        ("index.Tensor", "((T([5, 3], f32), [None, T([40], i64)]), {})"),
        ("nll_loss_forward.default", "((T([40, 6], f32), T([40], i64), None, 1, -100), {})"),
        ("_embedding_bag.default", "((T([7, 4], f32), T([9], i64), T([3], i64)), {})"),
        ("max_pool2d_with_indices_backward.default", "((T([1, 2, 4, 4], f32), T([1, 2, 8, 8], f32), [2, 2], [2, 2], "
         "[0, 0], [1, 1], False, T([1, 2, 4, 4], i64)), {})"),
    ],
)  # fmt: skip
def test_integers_are_indices_in_range(name: str, text: str) -> None:
    op = find_overload(f"aten.{name}")
    for seed in range(5):
        torch.manual_seed(seed)
        args, kwargs = build(op, *parse(text))
        op(*args, **kwargs)
    integers = [
        t for a in args for t in (a if isinstance(a, list) else [a]) if getattr(t, "dtype", None) is torch.int64
    ]
    assert any(len(t.unique()) > 1 for t in integers)


def test_half_precision_that_eager_lacks_is_made_in_float32_and_said(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text("Operator: aten._fft_c2c.default\ncnt: 2, ((T([3, 8], c32), [1], 0, True), {})\n")
    (make,) = oplogs.Sweep({"file": str(file)}).samples("aten._fft_c2c.default").values()
    sample = make()
    assert sample.facts["made_in"] == "float32"
    assert sample.facts["count"] == 2
    assert sample.call.args[0].dtype is torch.complex64


# -- quick parts of the sweeps ----------------------------------------------------------------------------------------

QUICK_LOGS = (
    "aten.mm.default", "aten.sum.dim_IntList", "aten._softmax_backward_data.default", "aten.native_batch_norm.default",
    "aten.convolution_backward.default", "aten.max_pool2d_with_indices.default", "aten.index_put.default",
    "aten.slice_backward.default", "aten.add_.Tensor",
)  # fmt: skip


@pytest.mark.parametrize("op", QUICK_LOGS)
def test_a_quick_part_of_the_logs_passes(op: str) -> None:
    samples = oplogs.Sweep({"samples": 2}).samples(op)
    torch.manual_seed(0)
    sample = samples[max(samples)]()
    checked = check_call(sample.call)
    assert checked.status in GOOD, f"{sample.facts['text']}: {checked.detail}"
    assert kind_of(checked.to_json()) in ("native", "library", "metadata")


def test_every_core_overload_has_calls() -> None:
    core = set()
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        if name.startswith("aten::"):
            op = getattr(getattr(aten, packet, None), overload or "default", None)
            if op is not None and torch.Tag.core in op.tags:
                core.add(str(op))
    assert len(core) > 150
    assert core - set(core_aten.Sweep({}).entries()) == set()


QUICK_CORE = (
    "aten.amax.default", "aten.avg_pool2d_backward.default", "aten.bitwise_and.Scalar", "aten.div.Scalar_mode",
    "aten.grid_sampler_2d.default", "aten.native_group_norm_backward.default", "aten.pow.Scalar", "aten.rand.default",
    "aten.scatter_reduce.two", "aten.slice_scatter.default", "aten.sym_size.int", "aten.upsample_bilinear2d.vec",
)  # fmt: skip


@pytest.mark.parametrize("op", QUICK_CORE)
def test_a_quick_part_of_core_aten_passes(op: str) -> None:
    samples = core_aten.Sweep({}).samples(op)
    torch.manual_seed(0)
    checked = check_call(samples[len(samples) // 2]().call)
    assert checked.status in GOOD, checked.detail
    assert "verified" in checked.outputs.values()


def test_the_data_files_are_packaged() -> None:
    root = Path(__file__).resolve().parents[3]
    table = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    folder = root / "coverage" / "sweeps"
    files = [*(folder / "data").iterdir(), *folder.glob("*.tsv")]
    assert oplogs.BUILT_IN in files
    for file in files:
        name = file.relative_to(folder).as_posix()
        assert any(fnmatch(name, pattern) for pattern in table["relaxgrad.coverage.sweeps"]), name
