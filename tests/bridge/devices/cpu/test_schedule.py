# SPDX-License-Identifier: Apache-2.0
"""Each schedule rule of the CPU: the loops it makes, and that the result stays right."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tvm import te, tirx

from relaxgrad.bridge.backend import relaxgrad
from relaxgrad.bridge.compile.schedule import apply_rules
from relaxgrad.bridge.devices.cpu.schedule import BLOCK_RULES, RULES
from relaxgrad.bridge.devices.cpu.schedule.each_block import EachBlock
from relaxgrad.bridge.importer.compute import layout, norm, pointwise, reduce
from relaxgrad.bridge.targets import resolve_target
from tests.accuracy import as_accurate, widened
from tests.bridge.compile.kernels import build, build_symbolic

ACCUMULATE = ("float32", "float64", "float32")


def _text(kernel: Any) -> str:
    """The kernel's TVMScript without the root block, which is printed as a comment."""
    return "\n".join(line for line in str(kernel.script()).splitlines() if not line.strip().startswith("#"))


class Recorded:
    """A rule that keeps its name where it takes what it is given."""

    def __init__(self, rule: Any, taken: list[str]):
        self.name = rule.name
        self._rule = rule
        self._taken = taken

    def apply(self, *given: Any) -> Any:
        made = self._rule.apply(*given)
        if made is not None and made is not False:
            self._taken.append(self.name)
        return made


def _times(t: te.Tensor, factor: float) -> te.Tensor:
    return te.compute(t.shape, lambda *i: t(*i) * tirx.const(factor, "float32"), name="times")


#: A kernel over (32, 64) elements for each rule.
KERNELS: dict[str, Callable[[te.Tensor], Any]] = {
    "rows": lambda t: norm.softmax(t, 1, *ACCUMULATE),
    "same elements": lambda t: [_times(t, 2.0), _times(t, 3.0)],
    "numbers": lambda t: reduce.sum_as(t, [0, 1], False, "float64", "float32"),
    "columns": lambda t: reduce.sum_as(t, [0], False, "float64", "float32"),
    "each block": lambda t: _times(t, 2.0),
    "tiles": lambda t: layout.permute(t, [1, 0]),
    "column steps": lambda t: te.compute((32, 128), lambda i, j: t(i, j // 2), name="repeated"),
    "lanes": lambda t: _times(t, 2.0),
}


@pytest.mark.parametrize("name", [rule.name for rule in (*RULES, *BLOCK_RULES)])
def test_each_rule_takes_a_kernel(name: str) -> None:
    taken: list[str] = []
    blocks = EachBlock([Recorded(rule, taken) for rule in BLOCK_RULES])
    rules = [Recorded(rule, taken) for rule in (*RULES[:-1], blocks)]
    x = te.placeholder((32, 64), name="x")
    made = KERNELS[name](x)
    kernel = te.create_prim_func([x, *(made if isinstance(made, list) else [made])], index_dtype_override="int64")
    apply_rules(kernel, rules, resolve_target("llvm"))
    assert name in taken


@pytest.mark.parametrize("shape", [(4, 64), (3, 7), (5, 48, 3), (16,), ()], ids=str)
def test_element_wise_chain_becomes_one_block(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)

    def chain(t: te.Tensor) -> te.Tensor:
        double = te.compute(t.shape, lambda *i: t(*i) * tirx.const(2.0, "float32"), name="double")
        return te.compute(t.shape, lambda *i: double(*i) + tirx.const(1.0, "float32"), name="plus")

    (y,), kernel = build(chain, x)
    torch.testing.assert_close(y, x * 2 + 1)
    assert _text(kernel).count("T.sblock(") == 1
    if x.numel() % 16 == 0:
        assert "T.vectorized(T.int64(16))" in _text(kernel)


def _extents(kernel: Any) -> list[int]:
    """Of the kernel's loops, outermost first."""
    found = re.findall(r"for .* in (?:range|T\.\w+)\((.*)\):", _text(kernel))
    return [int(n) for loop in found for n in re.findall(r"\b\d+\b", loop.replace("int64", ""))]


TRANSPOSES = [
    ((64, 48), (1, 0), (16, 16)),
    ((100, 60), (1, 0), (15, 10)),
    ((3, 28, 5, 96), (0, 3, 1, 2), (16, 5)),
    ((2, 6, 7, 7), (0, 2, 3, 1), (7, 6)),
    ((5, 32, 4, 8), (1, 3, 0, 2), (8, 4)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize(("shape", "order", "tile"), TRANSPOSES, ids=str)
def test_transposes_go_by_tiles(
    shape: tuple[int, ...], order: tuple[int, ...], tile: tuple[int, int], dtype: torch.dtype
) -> None:
    x = torch.randn(shape).to(dtype) if dtype != torch.bool else torch.randn(shape) > 0
    (y,), kernel = build(lambda t: layout.permute(t, order), x)
    assert torch.equal(y, x.permute(order))
    assert tuple(_extents(kernel)[-2:]) == tile
    assert "T.vectorized(" in _text(kernel)


@pytest.mark.parametrize(
    ("shape", "order", "extents"),
    [
        ((32, 4, 48), (1, 0, 2), [4, 32, 3, 16]),
        ((64, 3), (1, 0), [3, 4, 16]),
        ((3, 64), (1, 0), [12, 16]),
        ((19, 64), (1, 0), [76, 16]),
    ],
    ids=["rows stay", "few columns", "few rows", "no divisor"],
)
def test_other_transposes_have_no_tiles(shape: tuple[int, ...], order: tuple[int, ...], extents: list[int]) -> None:
    x = torch.randn(shape)
    (y,), kernel = build(lambda t: layout.permute(t, order), x)
    assert torch.equal(y, x.permute(order))
    assert _extents(kernel) == extents


def test_values_read_twice_over_and_over_do_not_double_the_expression() -> None:
    x = torch.rand(4, 32)
    steps = 60

    def step(t: te.Tensor) -> te.Tensor:
        return te.compute(t.shape, lambda *i: t(*i) * tirx.const(0.5, "float32") + t(*i) * t(*i), name="step")

    def chain(t: te.Tensor) -> te.Tensor:
        for _ in range(steps):  # 3 ** 60 loads if every value were put in the place of its readers
            t = step(t)
        return t

    (y,), kernel = build(chain, x)
    expected = x
    for _ in range(steps):
        expected = expected * 0.5 + expected * expected
    torch.testing.assert_close(y, expected)
    assert len(_text(kernel)) < 100_000


def test_reshapes_of_slices_of_reshapes_are_stored_between() -> None:
    """Relative attention's shift, twice: TVM folds the divisions of its indices into an index that is off by 48."""

    def shift(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        padded = torch.slice_scatter(torch.zeros(4, 4, 48, 24), x.view(4, 4, 47, 24), 2, 1).view(4, 4, 24, 48, 1)
        rows = padded.permute(1, 0, 2, 4, 3).contiguous().view(4, 96, 48) * 1.0
        whole = rows.view(4, 4, 24, 1, 48).permute(1, 0, 2, 4, 3).view(4, 4, 24, 48).view(4, 4, 48, 24)
        tail = whole[:, :, 1:].view(4, 4, 24, 47)
        written = torch.slice_scatter(tail, tail[..., :24] * mask, 3, 0, 24)
        whole = torch.slice_scatter(whole, written.view(4, 4, 47, 24), 2, 1)
        return whole.view(4, 4, 24, 48, 1).permute(1, 0, 2, 4, 3)

    x, mask = torch.randn(4, 4, 24, 47), torch.randn(24, 24)
    compiled = torch.compile(shift, backend=relaxgrad, options={"on_compile_error": "raise"})
    assert torch.equal(compiled(x, mask), shift(x, mask))


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("columns", [1, 3, 4, 16, 32, 50, 272])
@pytest.mark.parametrize("which", ["softmax", "log_softmax"])
def test_softmax_rows_share_one_loop(which: str, rows: int, columns: int) -> None:
    x = torch.randn(rows, columns) * 5
    (y,), kernel = build(lambda t: getattr(norm, which)(t, 1, *ACCUMULATE), x)
    as_accurate(getattr(torch, which)(x.double(), 1), getattr(torch, which)(x, 1), y)
    if columns > 16 and columns % 16 == 0 and rows > 1:
        text = _text(kernel)
        assert text.count(f"in range(T.int64({rows}))") == 1, "one loop over the rows"
        assert "T.vectorized(T.int64(16))" in text


@pytest.mark.parametrize("shape", [(6, 32), (2, 3, 64), (4, 20)], ids=str)
def test_layer_norm_gives_statistics_and_output_of_one_kernel(shape: tuple[int, ...]) -> None:
    x, weight, bias = torch.randn(shape) * 3 + 1, torch.randn(shape[-1]), torch.randn(shape[-1])
    axis = len(shape) - 1

    def layer_norm(t: te.Tensor, w: te.Tensor, b: te.Tensor) -> list[te.Tensor]:
        return norm.layer_norm(t, w, b, axis, 1e-5, *ACCUMULATE, "float32")

    outputs, _ = build(layer_norm, x, weight, bias)
    exact, eager = (
        list(torch.native_layer_norm(given[0], [shape[-1]], *given[1:], 1e-5))
        for given in (widened([x, weight, bias]), [x, weight, bias])
    )
    as_accurate(exact, eager, outputs)


@pytest.mark.parametrize("dims", [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("shape", [(4, 8, 32), (3, 5, 7), (1, 1, 64), (2, 1, 1)], ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_sums_over_any_dims(dims: list[int], shape: tuple[int, ...], keepdim: bool) -> None:
    x = torch.randn(shape)
    (y,), _ = build(lambda t: reduce.sum_as(t, dims, keepdim, "float64", "float32"), x)
    torch.testing.assert_close(y, x.double().sum(dims, keepdim=keepdim).float(), rtol=1e-6, atol=1e-6)


def test_column_sum_runs_over_neighbouring_columns() -> None:
    x = torch.randn(40, 64)
    (y,), kernel = build(lambda t: reduce.sum_as(t, [0], False, "float64", "float32"), x)
    as_accurate(x.double().sum(0), x.sum(0), y)
    assert "T.vectorized(T.int64(16))" in _text(kernel)


def test_large_kernels_are_parallel_and_small_ones_are_not() -> None:
    def double(t: te.Tensor) -> te.Tensor:
        return te.compute(t.shape, lambda *i: t(*i) + t(*i), name="double")

    assert "T.parallel" in _text(build(double, torch.randn(256, 256))[1])
    assert "T.parallel" not in _text(build(double, torch.randn(16, 16))[1])


SIZES = [(1, 1), (2, 15), (3, 16), (5, 17), (4, 64), (2, 130), (1, 200)]
ROWS: list[tuple[Callable[[te.Tensor], te.Tensor], Callable[[torch.Tensor], torch.Tensor]]] = [
    (lambda t: norm.softmax(t, 1, *ACCUMULATE), lambda x: x.softmax(1)),
    (lambda t: reduce.sum_as(t, [1], False, "float64", "float32"), lambda x: x.sum(1)),
    (lambda t: reduce.amax(t, [1], False), lambda x: x.amax(1)),
    (lambda t: te.compute(t.shape, lambda i, j: tirx.exp(t(i, j)), name="e"), lambda x: x.exp()),
]


@pytest.mark.parametrize("dims", [("n", "m"), ("n", 48), (3, "m")], ids=str)
@pytest.mark.parametrize(("ours", "theirs"), ROWS, ids=["softmax", "sum", "amax", "exp"])
def test_symbolic_sizes_have_lanes(ours: Any, theirs: Any, dims: tuple[str | int, str | int]) -> None:
    """Rows of every length: shorter than the lanes, a multiple of them, and with a remainder."""
    sizes = {tuple(d if isinstance(d, int) else n for d, n in zip(dims, size, strict=True)) for size in SIZES}
    inputs = [torch.randn(size) for size in sorted(sizes)]
    results, kernel = build_symbolic(ours, dims, inputs)
    for y, x in zip(results, inputs, strict=True):
        as_accurate(theirs(x.double()), theirs(x), y)
    text = _text(kernel)
    assert "T.vectorized(T.int64(16))" in text
    assert ("pragma_loop_partition_hint" in text) == isinstance(dims[1], str)


def test_symbolic_softmax_rows_share_one_loop() -> None:
    text = _text(build_symbolic(ROWS[0][0], ("n", "m"), [])[1])
    assert len(re.findall(r"in T.parallel\(n\)", text)) == 1
    assert "in range(n)" not in text


def test_symbolic_columns_that_test_their_place_have_no_lanes() -> None:
    """TVM's LoopPartition took such a test for one of the loop's end, and ended the process."""

    def padded(t: te.Tensor) -> te.Tensor:
        zero = tirx.const(0.0, "float32")
        return te.compute(t.shape, lambda i, j: tirx.if_then_else(j >= 3, t(i, j - 3), zero), name="padded")

    inputs = [torch.randn(2, n) for n in (1, 3, 20, 64)]
    results, kernel = build_symbolic(padded, ("n", "m"), inputs)
    for y, x in zip(results, inputs, strict=True):
        assert torch.equal(y, torch.nn.functional.pad(x, (3, 0))[:, : x.shape[1]])
    assert "pragma_loop_partition_hint" not in _text(kernel)


def test_symbolic_masks_of_positions_stay_within_their_tensor() -> None:
    """LoopPartition takes `column > row` for the end of the loop: with vectors the kernel wrote beyond its output."""

    def mask(x: te.Tensor) -> te.Tensor:
        above = tirx.const(1.0, "float32")
        return te.compute(x.shape, lambda i, j: tirx.Select(j - i > 0, x[i, j], above), name="mask")

    def ordinary(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda i, j: tirx.Select(x[i, j] > x[i, 0], x[i, j], x[i, 0]), name="largest")

    inputs = [torch.randn(n, n) for n in (128, 37, 100)]
    found, kernel = build_symbolic(mask, ["n", "n"], inputs)
    assert "pragma_loop_partition_hint" not in str(kernel)
    for x, y in zip(inputs, found, strict=True):
        torch.testing.assert_close(y, torch.where(torch.ones_like(x).triu(1) > 0, x, 1.0))
    assert "pragma_loop_partition_hint" in str(build_symbolic(ordinary, ["n", "n"], inputs)[1])


def test_rows_of_a_batch_of_one_share_one_loop() -> None:
    """Their readers index the batch by zero, as every broadcast dim."""
    x = torch.randn(1, 32, 64)

    def normalized(t: te.Tensor) -> te.Tensor:
        mean = reduce.mean(t, [2], True, "float64", "float32")
        return te.compute(t.shape, lambda i, j, k: t(i, j, k) - mean(0, j, 0), name="centered")

    (y,), kernel = build(normalized, x)
    torch.testing.assert_close(y, x - x.mean(2, keepdim=True))
    assert _extents(kernel).count(32) == 1
    assert "T.vectorized(T.int64(16))" in _text(kernel)


def test_rows_that_read_other_rows_share_no_loop() -> None:
    """Each row is divided by the sums of all rows: as one loop, most of those would not be there yet."""
    x = torch.rand(32, 32) + 1

    def crossed(t: te.Tensor) -> te.Tensor:
        total = reduce.sum_as(t, [1], False, "float64", "float32")
        return te.compute(t.shape, lambda i, j: t(i, j) / total(j), name="crossed")

    (y,), _ = build(crossed, x)
    torch.testing.assert_close(y, x / x.sum(1))


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.uint8]
EXTREMES: list[tuple[str, Callable[..., te.Tensor]]] = [("amax", reduce.amax), ("amin", reduce.amin)]


@pytest.mark.parametrize(("name", "function"), EXTREMES, ids=["amax", "amin"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.uint8]
)
def test_extremes_order_like_atens(name: str, function: Callable[..., te.Tensor], dtype: torch.dtype) -> None:
    x = (torch.randn(6, 32) * 10).to(dtype)
    if dtype.is_floating_point:
        nan, inf = float("nan"), float("inf")
        x[1, 3], x[2, 5], x[3], x[4] = nan, -nan, -inf, inf
        x[5] = -0.0
    (y,), _ = build(lambda t: function(t, [1], False), x)
    torch.testing.assert_close(y, getattr(torch, name)(x, 1), rtol=0, atol=0, equal_nan=True)


def test_a_reduction_over_nothing_starts_its_output() -> None:
    x = torch.randn(3, 0)
    (y,), _ = build(
        lambda t: reduce.reduce(
            t, [1], False, lambda v: v, lambda a, b: a + b, lambda d: pointwise.number(0, d), "sum"
        ),
        x.as_strided((3, 0), (0, 1)),
    )
    assert torch.equal(y, torch.zeros(3))


def test_a_reader_that_writes_beyond_the_row_writes_all_of_it() -> None:
    """A padded softmax: TVM's reverse_compute_at would keep only the columns that read the reduction."""
    x = torch.randn(6, 32)

    def padded(t: te.Tensor) -> te.Tensor:
        y = norm.softmax(t, 1, *ACCUMULATE)
        return te.compute(
            (6, 48), lambda i, j: tirx.if_then_else(j < 32, y(i, j), tirx.const(-1.0, "float32")), name="padded"
        )

    (y,), _ = build(padded, x)
    torch.testing.assert_close(y, torch.nn.functional.pad(x.softmax(1), (0, 16), value=-1.0))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_one_value_in_every_lane(dtype: str) -> None:
    """A fill and a broadcast along the vector lanes: of bfloat16, TVM cannot compile the vector store."""
    x = torch.randn(4, 1).to(getattr(torch, dtype))

    def fill_and_spread(t: te.Tensor) -> list[te.Tensor]:
        filled = te.compute((4, 32), lambda i, j: pointwise.number(1.5, dtype), name="filled")
        return [filled, te.compute((4, 32), lambda i, j: t(i, 0), name="spread")]

    (filled, spread), _ = build(fill_and_spread, x)
    assert torch.equal(filled, torch.full((4, 32), 1.5, dtype=x.dtype))
    assert torch.equal(spread, x.expand(4, 32))


def test_a_number_beside_a_row_reduction_is_computed_once_and_leaves_the_lanes() -> None:
    x, t = torch.randn(64, 256), torch.tensor(0.3)

    def scaled_sums(x: te.Tensor, t: te.Tensor) -> te.Tensor:
        scale = te.compute((), lambda: tirx.exp(t()), name="scale")
        scaled = te.compute(x.shape, lambda i, j: x(i, j) * scale(), name="scaled")
        return reduce.sum_as(scaled, [1], False, "float64", "float32")

    (y,), kernel = build(scaled_sums, x, t)
    torch.testing.assert_close(y, (x * t.exp()).sum(1))
    text = _text(kernel)
    assert text.count("T.exp(") == 1
    assert text.index("T.exp(") < text.index("T.parallel")
    assert "T.vectorized(" in text
