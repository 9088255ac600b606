# SPDX-License-Identifier: Apache-2.0
"""Resizing of images: gradients of every mode as calls of their own, antialiased windows, scales, symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.bridge.importer.harness import run_test

aten = torch.ops.aten


def _gradient(op: Callable[..., Tensor], *given: object) -> Callable[[Tensor, Tensor], Tensor]:
    """The gradient op for a gradient `g` and an input like `x`; `given` is what follows the sizes."""

    def call(g: Tensor, x: Tensor) -> Tensor:
        return op(g, list(g.shape[2:]), list(x.shape), *given)

    return call


NEAREST = {
    "nearest1d": (aten.upsample_nearest1d_backward.default, 1),
    "nearest2d": (aten.upsample_nearest2d_backward.default, 2),
    "nearest3d": (aten.upsample_nearest3d_backward.default, 3),
    "exact1d": (aten._upsample_nearest_exact1d_backward.default, 1),
    "exact2d": (aten._upsample_nearest_exact2d_backward.default, 2),
    "exact3d": (aten._upsample_nearest_exact3d_backward.default, 3),
}
ALIGNED = {
    "linear1d": (aten.upsample_linear1d_backward.default, 1),
    "bilinear2d": (aten.upsample_bilinear2d_backward.default, 2),
    "trilinear3d": (aten.upsample_trilinear3d_backward.default, 3),
    "bicubic2d": (aten.upsample_bicubic2d_backward.default, 2),
    "bilinear2d_aa": (aten._upsample_bilinear2d_aa_backward.default, 2),
    "bicubic2d_aa": (aten._upsample_bicubic2d_aa_backward.default, 2),
}
#: Sizes of the output and of the input, a column for each dim: larger, smaller, one element, the same, twice, seven.
OUT, IN = ((7, 5, 1), (4, 8, 2)), ((3, 8, 4), (4, 4, 5))


def _pair(rank: int, case: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    torch.manual_seed(case)
    out, size = OUT[case][:rank], IN[case][:rank]
    return torch.randn(2, 3, *out).to(dtype), torch.randn(2, 3, *size).to(dtype)


@pytest.mark.parametrize("name", NEAREST)
def test_gradients_of_nearest_modes(name: str) -> None:
    op, rank = NEAREST[name]
    plain, scaled = _gradient(op), _gradient(op, *[1.7] * rank)

    def both(*tensors: Tensor) -> list[Tensor]:
        pairs = zip(tensors[::2], tensors[1::2], strict=True)
        return [f(g, x) for g, x in pairs for f in (plain, scaled)]

    run_test(both, *_pair(rank, 0), *_pair(rank, 1), *_pair(rank, 1, torch.bfloat16), grad=False, ops=[str(op)])


@pytest.mark.parametrize("name", ALIGNED)
def test_gradients_of_interpolating_modes(name: str) -> None:
    op, rank = ALIGNED[name]
    settings = [(True,), (False,), (False, *[0.6] * rank)]
    calls = [_gradient(op, *given) for given in settings]

    def every(*tensors: Tensor) -> list[Tensor]:
        pairs = zip(tensors[::2], tensors[1::2], strict=True)
        return [f(g, x) for g, x in pairs for f in calls]

    # ATen's antialiased kernels take no halves on the CPU.
    other = torch.float64 if name.endswith("_aa") else torch.float16
    run_test(every, *_pair(rank, 0), *_pair(rank, 1, other), grad=False, ops=[str(op)])


@pytest.mark.parametrize("name", ["nearest2d", "exact2d", "bilinear2d_aa"])  # torch traces no other
def test_gradients_with_symbolic_sizes(name: str) -> None:
    op, _ = (NEAREST | ALIGNED)[name]
    call = _gradient(op, *([] if name in NEAREST else [False]))

    def pair(out: tuple[int, int], size: tuple[int, int], batch: int) -> tuple[Tensor, Tensor]:
        return torch.randn(batch, 3, *out), torch.randn(batch, 3, *size)

    others = [((9, 10), (3, 7), 3), ((5, 6), (11, 6), 2), ((17, 4), (29, 2), 4)]
    run_test(call, *pair((7, 4), (5, 6), 2), then=[pair(*o) for o in others], grad=False, dynamic=True)


def test_gradients_add_in_channels_last_and_of_sliced_memory() -> None:
    op = aten.upsample_bilinear2d_backward.default

    def call(g: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return _gradient(op, False)(g, x), _gradient(op, True)(g[:, :, ::2], x)

    g, x = torch.randn(2, 3, 6, 5), torch.randn(2, 3, 4, 3)
    run_test(call, g.contiguous(memory_format=torch.channels_last), x, grad=False)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
def test_antialiased_resize_and_its_gradient(mode: str) -> None:
    def resize(x: Tensor) -> list[Tensor]:
        sizes = [(3, 4), (11, 5), (1, 7), (6, 9)]
        found = [F.interpolate(x, size, mode=mode, antialias=True) for size in sizes]
        if mode != "lanczos":
            found.append(F.interpolate(x, (1, 4), mode=mode, align_corners=True, antialias=True))
            found.append(F.interpolate(x, scale_factor=(0.4, 1.3), mode=mode, antialias=True))
        return found

    ops = [f"aten._upsample_{mode}2d_aa.default"]
    run_test(resize, torch.randn(2, 3, 6, 9), grad=mode != "lanczos", ops=ops)


def test_antialiased_resize_with_symbolic_sizes() -> None:
    def resize(x: Tensor, y: Tensor) -> Tensor:
        return F.interpolate(x, y.shape[2:], mode="bilinear", antialias=True)

    def pair(size: tuple[int, int], out: tuple[int, int]) -> tuple[Tensor, Tensor]:
        return torch.randn(2, 3, *size), torch.randn(1, 1, *out)

    run_test(
        lambda x, y: resize(x, y) * y.sum(), *pair((6, 9), (4, 12)), then=[pair((23, 5), (3, 4))], dynamic=True
    )  # fmt: skip


def test_antialiased_resize_reads_nothing_outside_its_window() -> None:
    x = torch.randn(1, 1, 12, 12)
    x[0, 0, 0, 0] = float("inf")
    run_test(lambda x: F.interpolate(x, (4, 4), mode="bilinear", antialias=True)[..., 1:, 1:], x, grad=False)
