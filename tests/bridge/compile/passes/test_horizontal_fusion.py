# SPDX-License-Identifier: Apache-2.0
"""Element-wise kernels over the same elements become one with several results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.compile.passes import horizontal_fusion
from relaxgrad.bridge.compile.passes.horizontal_fusion import LARGE
from tests.bridge.compile.kernels import keep_scheduled

OPTIONS = {"cache": "off", "compile_in": "here"}


def kernels_of(function: Callable[..., object], *args: torch.Tensor, dynamic: bool | None = None) -> int:
    """How many kernels the function's forward has; its results are eager's."""
    torch.compiler.reset()
    with record_graphs() as records:
        found = torch.compile(function, backend=relaxgrad, options=OPTIONS, dynamic=dynamic)(*args)
    torch.testing.assert_close(found, function(*args))
    return records[0].kernels


def test_values_that_are_returned_and_read_share_a_kernel() -> None:
    def cell(gates: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        i, f, g, o = gates.chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        return i, f, g, o, c, o * c.tanh()

    assert kernels_of(cell, torch.randn(8, 1024), torch.randn(8, 256)) == 1
    assert kernels_of(cell, torch.randn(3, 20), torch.randn(3, 5)) == 1  # no whole vector


def test_symbolic_rows_share_a_kernel() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x.sigmoid()
        b = a * y
        return a, b, (a + b).tanh()

    x, y = torch.randn(8, 100), torch.randn(8, 100)
    alone = kernels_of(lambda x: x.sigmoid(), x, dynamic=True)  # with the function that computes sizes
    assert kernels_of(f, x, y, dynamic=True) == alone


def test_what_shares_no_tensor_stays_apart() -> None:
    def apart(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sin(), y.cos()

    assert kernels_of(apart, torch.randn(4, 16), torch.randn(4, 16)) == 2
    assert kernels_of(lambda x, y: (x.sin(), x.cos()), torch.randn(4, 16), torch.randn(4, 16)) == 1


def test_a_product_between_two_kernels_is_not_overtaken() -> None:
    """`a` is read by the product (of the BLAS); `b` may be computed with it, `c` needs the product."""

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x.sin()
        m = a @ w
        b = a * x
        c = m + a
        return a, m, b, c, c * b

    assert kernels_of(f, torch.randn(32, 32), torch.randn(32, 32)) == 2


def test_large_results_are_not_made_long_before_they_are_read() -> None:
    """Eight factors of x, each read by a product: in one kernel all would be alive at once."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return sum(((x + k) @ w).relu().sum() for k in range(8))  # type: ignore[return-value]

    w = torch.randn(8, 8) / 8
    assert kernels_of(f, torch.randn(16, 8), w) <= 4
    assert kernels_of(f, torch.randn(LARGE // 32 + 1, 8), w) >= 8


def test_large_inputs_do_not_wait_for_a_long_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each product is read once; in one kernel all of them would be alive at once."""
    groups: list[int] = []
    own = horizontal_fusion._groups

    def counted(*args: Any) -> Any:
        found = own(*args)
        groups.extend(len(group.members) for group in found)
        return found

    monkeypatch.setattr(horizontal_fusion, "_groups", counted)

    def f(x: torch.Tensor, a: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x * ((a + k) @ w) for k in range(10))

    w = torch.randn(8, 8) / 8
    kernels_of(f, torch.randn(16, 8), torch.randn(16, 8), w)
    assert max(groups) == 10
    groups.clear()
    large = LARGE // 32 + 1
    kernels_of(f, torch.randn(large, 8), torch.randn(large, 8), w)
    assert max(groups, default=0) <= 2


def test_a_reshape_shares_memory_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    from relaxgrad.bridge.compile import pipeline

    texts: list[str] = []
    run = pipeline.run_passes

    def observed(module: object, device: object, target: object, *_: object) -> object:
        return run(module, device, target, lambda name, m: texts.append(str(m["main"])) if "Reshape" in name else None)

    monkeypatch.setattr(pipeline, "run_passes", observed)

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = x.relu()
        rows = h.view(-1, 16)
        return h, rows.cumsum(0), (rows * 2).cumsum(0), rows.flip(0) @ w

    kernels_of(f, torch.randn(4, 4, 16), torch.randn(16, 16))
    assert "R.reshape" in texts[-1]


def test_a_transpose_keeps_its_tiles() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.t().contiguous(), x + 1

    assert kernels_of(f, torch.randn(64, 64)) == 2


def test_large_kernels_run_in_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = keep_scheduled(monkeypatch)
    assert kernels_of(lambda x: (x.sin(), x.cos()), torch.randn(64, 1024)) == 1
    assert seen[0].count("T.parallel") == 1
    assert seen[0].count("T.vectorized") == 2


UNARY = (
    torch.sin,
    torch.tanh,
    torch.relu,
    torch.neg,
    torch.sigmoid,
    lambda t: t * 0.5,
    lambda t: t.t().contiguous().t(),
)
BINARY = (torch.add, torch.sub, torch.mul, torch.maximum, lambda a, b: a * b.sum(1, keepdim=True).tanh())


def program(seed: int) -> Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]:
    """Twenty random steps over two matrices, of which a third are returned."""
    rng = random.Random(seed)
    steps = [(rng.random(), *(rng.randrange(1, 6) for _ in range(3)), rng.random() < 0.3) for _ in range(20)]

    def run(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, returned = [x, y, x + 1, y - x, x * y], []
        for kind, i, j, k, is_returned in steps:
            a, b, c = values[-i], values[-j], values[-k]
            if kind < 0.45:
                made = UNARY[int(kind * 100) % len(UNARY)](a)
            elif kind < 0.9:
                made = BINARY[int(kind * 100) % len(BINARY)](a, b)
            else:
                made = torch.tanh(a @ b.t() @ c) / 8
            values.append(made)
            if is_returned:
                returned.append(made)
        return (*returned, values[-1])

    return run


@pytest.mark.parametrize(("seed", "dynamic"), [(0, False), (1, False), (2, False), (3, False), (4, True), (7, True)])
def test_random_graphs_train_as_eager(seed: int, dynamic: bool) -> None:
    function = program(seed)
    rows, columns = [(6, 16), (5, 7), (16, 48), (3, 100)][seed % 4]
    torch.manual_seed(seed)
    given = [torch.randn(rows, columns, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    torch.compiler.reset()
    compiled = torch.compile(function, backend=relaxgrad, options=OPTIONS, dynamic=dynamic)
    results = []
    for f in (compiled, function):
        outputs = f(*given)
        gradients = torch.autograd.grad([o.sum() for o in outputs if o.requires_grad], given, allow_unused=True)
        results.append((outputs, [g for g in gradients if g is not None]))
    assert any(g.abs().sum() > 0 for g in results[1][1])
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-9)
