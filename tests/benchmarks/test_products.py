# SPDX-License-Identifier: Apache-2.0
"""The products of training graphs, timed in two libraries."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

from relaxgrad.benchmarks import products
from relaxgrad.benchmarks.products import Product
from relaxgrad.bridge.capture import capture_pair


def test_products_have_the_sizes_and_layouts_of_the_graphs() -> None:
    model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))
    x = torch.randn(4, 6, requires_grad=True)
    found: Counter[Product] = Counter()
    for graph in capture_pair(model, (x,)):
        found += products.products_of(graph.module.graph)
    assert found == {
        Product(4, 6, 10, False, True): 1,  # forward: the weight is (out, in)
        Product(4, 10, 3, False, True): 1,
        Product(4, 3, 10, False, False): 1,  # of the inputs
        Product(4, 10, 6, False, False): 1,
        Product(3, 4, 10, True, False): 1,  # of the weights
        Product(10, 4, 6, True, False): 1,
    }


def test_products_of_other_dtypes_are_left_out() -> None:
    model = nn.Linear(6, 10).double()
    graphs = capture_pair(model, (torch.randn(4, 6, dtype=torch.float64),))
    assert not any(products.products_of(graph.module.graph) for graph in graphs)


def test_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {Product(8, 8, 8, False, False): (3e-6, 2e-6), Product(64, 64, 64, True, True): (10e-6, 20e-6)}
    monkeypatch.setattr(products, "seconds", times.__getitem__)
    small, large = times
    text = products.report(Counter({small: 2, large: 4}))
    assert text.splitlines()[2].startswith("| 64 x 64ᵀ by 64 x 64ᵀ |")  # most of the time
    assert "saves" not in text
    assert "would save 4.3%" in text  # 2 us of 46
    assert "1 of 2 shapes" in text


def test_both_libraries_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "ROUNDS", 3)
    monkeypatch.setattr(products, "ROUND_SECONDS", 1e-4)
    assert all(s > 0 for s in products.seconds(Product(16, 32, 48, True, False)))
