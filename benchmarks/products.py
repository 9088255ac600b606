# SPDX-License-Identifier: Apache-2.0
"""Which library a matrix product should go to: the BLAS and oneDNN on the products of real training graphs.

`python -m relaxgrad.benchmarks.products [MODEL...]` (the models of `--zoo perf` where none is named) takes every static
float32 product of two matrices out of the forward and backward graphs, and times both libraries on operands of these
sizes and strides, in interleaved rounds, on one thread. The last line says what a table of the faster one for each
shape would save of the products' time: whether such a table is worth keeping.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

ROUNDS = 15
#: Seconds that one library is given for a round on a shape.
ROUND_SECONDS = 2e-3


@dataclass(frozen=True)
class Product:
    """`left @ right`: (rows, inner) by (inner, columns); a transposed operand is contiguous along its first dim."""

    rows: int
    inner: int
    columns: int
    left_transposed: bool
    right_transposed: bool

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.inner * self.columns

    def __str__(self) -> str:
        marks = ["ᵀ" if t else "" for t in (self.left_transposed, self.right_transposed)]
        return f"{self.rows} x {self.inner}{marks[0]} by {self.inner} x {self.columns}{marks[1]}"


def products_of(graph: Any) -> Counter[Product]:
    """The products of two matrices in an FX graph, each as often as it stands there."""
    import torch

    aten = torch.ops.aten
    found: Counter[Product] = Counter()
    for node in graph.nodes:
        if node.target is aten.mm.default:
            left, right = node.args
        elif node.target is aten.addmm.default:
            _, left, right = node.args
        else:
            continue
        a, b = left.meta["val"], right.meta["val"]
        sizes = (*a.shape, b.shape[1])
        if a.dtype is torch.float32 and all(isinstance(n, int) and n > 0 for n in sizes):
            found[Product(*sizes, *(t.stride(0) < t.stride(1) for t in (a, b)))] += 1
    return found


def seconds(product: Product) -> tuple[float, float]:
    """Median seconds of one product: (the BLAS, oneDNN), with the threads of this process."""
    import torch

    a = _matrix(product.rows, product.inner, product.left_transposed)
    b = _matrix(product.inner, product.columns, product.right_transposed)
    weight = b.t()
    out = torch.empty(product.rows, product.columns)
    blas: Callable[[], Any] = lambda: torch.mm(a, b, out=out)  # noqa: E731
    onednn: Callable[[], Any] = lambda: torch.ops.mkldnn._linear_pointwise(a, weight, None, "none", [], "")  # noqa: E731
    with torch.no_grad():
        times = max(1, int(ROUND_SECONDS / max(_once(blas, 2), 1e-7)))
        _once(onednn, 2)
        rounds = [(_once(blas, times), _once(onednn, times)) for _ in range(ROUNDS)]
    first, second = (sorted(column)[ROUNDS // 2] for column in zip(*rounds, strict=True))
    return first, second


def _matrix(rows: int, columns: int, transposed: bool) -> Any:
    import torch

    return torch.randn(columns, rows).t() if transposed else torch.randn(rows, columns)


def _once(run: Callable[[], Any], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start) / times


def report(counts: Counter[Product]) -> str:
    """The table, the products that take most of a step first."""
    from tabulate import tabulate

    timed = {product: seconds(product) for product in counts}
    rows = []
    for product in sorted(timed, key=lambda p: -counts[p] * min(timed[p])):
        blas, onednn = timed[product]
        rates = [f"{product.flops / s / 1e9:.0f}" for s in (blas, onednn)]
        rows.append([str(product), counts[product], f"{blas * 1e6:.0f}", f"{onednn * 1e6:.0f}", *rates])
    total = sum(counts[p] * blas for p, (blas, _) in timed.items())
    best = sum(counts[p] * min(both) for p, both in timed.items())
    columns = ("product", "times", "BLAS us", "oneDNN us", "BLAS GFLOP/s", "oneDNN GFLOP/s")
    table = tabulate(rows, columns, tablefmt="github", disable_numparse=True)
    return (
        f"{table}\n\nOf {total * 1e3:.1f} ms in the BLAS, the faster library for each shape would save "
        f"{1 - best / total:.1%}; {sum(o < b for b, o in timed.values())} of {len(timed)} shapes are faster in oneDNN."
    )


def main(names: Sequence[str]) -> int:
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    from relaxgrad.bridge.capture import capture_pair
    from relaxgrad.coverage.harness.models import load_problem
    from relaxgrad.coverage.zoo import select

    if not torch.backends.mkldnn.is_available():
        print("this build of torch has no oneDNN to compare with", file=sys.stderr)
        return 1
    torch.set_num_threads(1)
    counts: Counter[Product] = Counter()
    for name in names or select("perf"):
        problem = load_problem(name, 0)
        for graph in capture_pair(problem.module, problem.args, problem.kwargs, loss=problem.loss_of):
            counts += products_of(graph.module.graph)
        print(f"{name}: {len(counts)} shapes so far", file=sys.stderr, flush=True)
    print(report(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
