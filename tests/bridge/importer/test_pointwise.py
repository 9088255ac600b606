# SPDX-License-Identifier: Apache-2.0
"""Element-wise ops: values, edges, NaN, promotion, integer arithmetic, casts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from relaxgrad.bridge.backend import relaxgrad
from tests.bridge.importer.harness import run_test

nan, inf = float("nan"), float("inf")
_ANYWHERE = [
    "abs", "neg", "sign", "exp", "exp2", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh",
    "asinh", "atan", "erf", "erfc", "sigmoid", "square", "relu", "frac",
]  # fmt: skip
_POSITIVE = ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma"]
_ROUNDING = ["floor", "ceil", "trunc", "round"]
_EDGES = torch.tensor([0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 3.0, 1e-30, -1e30, 88.0, -88.0, inf, -inf, nan])


def test_functions_of_one_number_and_their_gradients() -> None:
    def functions(x: Tensor) -> list[Tensor]:
        small, positive = x * 0.3, x.abs() + 0.2
        inner = [small.asin(), small.acos(), small.atanh(), (positive + 1).acosh()]
        return [getattr(x, n)() for n in _ANYWHERE] + [getattr(positive, n)() for n in _POSITIVE[:-1]] + inner

    run_test(functions, torch.randn(4, 5))


def test_activations_and_their_gradients() -> None:
    def activations(x: Tensor, w: Tensor) -> list[Tensor]:
        return [
            F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.elu(x, 1.3), F.leaky_relu(x, 0.2),
            F.softplus(x, 2.0),
            F.hardtanh(x, -0.5, 0.7), F.hardswish(x), F.hardsigmoid(x), F.mish(x), F.selu(x), F.logsigmoid(x),
            F.relu6(x * 6), F.softsign(x), F.tanhshrink(x), F.softshrink(x, 0.3), F.hardshrink(x, 0.3), F.celu(x),
            F.glu(x, 0), F.prelu(x, w), F.threshold(x, 0.1, 0.5),
        ]  # fmt: skip

    run_test(activations, torch.randn(4, 5) * 2, torch.rand(5))


def test_edges_of_functions_of_one_number() -> None:
    def functions(x: Tensor) -> list[Tensor]:
        values = [getattr(x, n)() for n in (*_ANYWHERE, *_POSITIVE, *_ROUNDING) if n not in ("sin", "cos", "tan")]
        return [v.clamp(-1e4, 1e4) for v in values] + [x.isnan(), x.isinf(), x.isfinite(), x.signbit()]

    run_test(functions, _EDGES, grad=False)


def test_comparisons_and_extremes_meet_nan() -> None:
    def compare(x: Tensor, y: Tensor) -> list[Tensor]:
        plain = [x == y, x != y, x < y, x <= y, x > y, x >= y, ~(x < y), x == 0.5, x > -inf]
        extremes = [
            x.maximum(y),
            x.minimum(y),
            x.clamp(-1, 1),
            x.clamp(min=y),
            x.clamp(max=nan),
            torch.where(x > y, x, y),
        ]
        return plain + [e.nan_to_num(7.0, 8.0, 9.0) for e in extremes] + [torch.isclose(x, y, equal_nan=True)]

    run_test(compare, _EDGES[None], _EDGES[:, None], grad=False)


def test_arithmetic_of_two_numbers() -> None:
    def arithmetic(x: Tensor, y: Tensor) -> list[Tensor]:
        positive = x.abs() + 0.5
        return [
            x + y, x - 2 * y, torch.rsub(x, y, alpha=3), x * y, x / (y.abs() + 1), positive**y, x**2, x**3,
            positive**-1,
            positive**0.5, positive**1.7, 2.0**y, torch.atan2(x, y), torch.hypot(x, y), torch.copysign(x, y),
            torch.lerp(x, y, 0.3), torch.lerp(x, y, y), torch.addcmul(x, y, x, value=0.5), torch.logaddexp(x, y),
            torch.addcdiv(x, y, positive, value=2), torch.xlogy(x, positive), x.masked_fill(y > 0, 2.0),
            torch.add(x, y, alpha=0.25), torch.fmax(x, y),
        ]  # fmt: skip

    run_test(arithmetic, torch.randn(3, 4), torch.randn(4))


def test_remainders_follow_pytorchs_signs() -> None:
    def remainders(x: Tensor, y: Tensor) -> list[Tensor]:
        modes = [torch.div(x, y, rounding_mode=m) for m in ("floor", "trunc")]
        return [x % y, torch.fmod(x, y), x // y, x % 3, torch.fmod(x, -3), x // 2, *modes]

    x = torch.tensor([7, -7, 8, -8, 0, 5, 127, -128])
    run_test(remainders, x.float() * 0.75, torch.tensor([2.0, -2.5, 3.0, -0.75])[:, None], grad=False)
    run_test(remainders, x.int(), torch.tensor([2, -2, 3, -1], dtype=torch.int32)[:, None])
    run_test(remainders, x.to(torch.int8), torch.tensor([2, -2, 3, -1], dtype=torch.int8)[:, None])


def test_integer_division_by_zero_raises_and_the_process_lives() -> None:
    compiled = torch.compile(lambda x, y: x // y, backend=relaxgrad)
    x = torch.tensor([4, 5])
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x, torch.tensor([2, 0]))
    assert compiled(x, torch.tensor([2, 5])).tolist() == [2, 1]


def test_promotion_of_dtypes_and_python_numbers() -> None:
    def mixed(i: Tensor, b: Tensor, f: Tensor, h: Tensor, d: Tensor, zero: Tensor) -> list[Tensor]:
        return [
            i + 1, i + 1.5, i / 2, i / i.abs().clamp(min=1), b + 1, b + b, b * i, b | (i > 0), f + d, h + f, h * 2.5,
            i * h,
            f * zero, i + zero, h + zero, b * f, f + i, torch.where(b, i, f), torch.where(b, 1, 2.5), i.float() * d,
            ~b, b ^ (i > 1), i & 3, i | 4, i ^ 1, ~i, i.logical_not(), f.logical_and(i), i.bool(),
        ]  # fmt: skip

    i = torch.tensor([-3, 0, 2, 5])
    f = torch.randn(4)
    run_test(mixed, i, i > 0, f, f.half(), f.double() + 1, torch.tensor(2.5, dtype=torch.float64), grad=False)


def test_integers_wrap() -> None:
    def wrap(a: Tensor, b: Tensor, c: Tensor) -> list[Tensor]:
        return [a + a, a * a, -a, a.abs(), b + b, b - 200, c * c, c + 2**30, a**3, (a > 0) * 5]

    big = torch.tensor([2**31 - 1, -(2**31), 7], dtype=torch.int32)
    run_test(wrap, torch.tensor([127, -128, 3], dtype=torch.int8), torch.tensor([255, 3, 0], dtype=torch.uint8), big)


def test_casts_truncate_wrap_and_round() -> None:
    names = [
        torch.int8,
        torch.uint8,
        torch.int32,
        torch.int64,
        torch.bool,
        torch.float16,
        torch.bfloat16,
        torch.float64,
    ]

    def casts(x: Tensor, i: Tensor) -> list[Tensor]:
        return (
            [x.to(d) for d in names]
            + [i.to(d) for d in names]
            + [x.to(d).float() for d in names if d is not torch.bfloat16]
        )

    run_test(
        casts, torch.tensor([0.0, -0.7, 1.5, -100.9, 120.2, 3.14159]), torch.tensor([0, -1, 200, 70000]), grad=False
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_computes_wide_and_rounds_once_an_op(dtype: torch.dtype) -> None:
    def chain(x: Tensor, y: Tensor) -> list[Tensor]:
        return [F.gelu(x) + y, (x * 3).exp() / y, (x - y).sigmoid(), x.maximum(y), F.silu(x * y), x + 1e-3]

    run_test(chain, torch.randn(4, 5).to(dtype), (torch.rand(5) + 1).to(dtype))


def test_losses() -> None:
    def losses(x: Tensor, y: Tensor) -> list[Tensor]:
        labels = torch.tensor([1, 0, -100, 3])
        return [
            F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y, delta=0.5),
            F.cross_entropy(x, labels), F.cross_entropy(x, labels, label_smoothing=0.1, reduction="sum"),
            F.cross_entropy(x, y.softmax(-1)), F.nll_loss(x.log_softmax(-1), labels, reduction="none"),
            F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.kl_div(x.log_softmax(-1), y.softmax(-1)),
            F.cosine_similarity(x, y), F.margin_ranking_loss(x, y, torch.ones(4, 5)),
        ]  # fmt: skip

    run_test(losses, torch.randn(4, 5), torch.randn(4, 5))
