# SPDX-License-Identifier: Apache-2.0
"""Masks drawn by generated code: bit by bit what ATen draws, and the generator left where ATen leaves it."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from relaxgrad.bridge.backend import record_graphs, relaxgrad
from relaxgrad.bridge.devices.cpu.compute import mersenne
from relaxgrad.bridge.devices.cpu.ops import random
from relaxgrad.bridge.kinds import Kind
from relaxgrad.bridge.runtime.profile import profile_kernels
from tests.bridge.compile.kernels import build

SIZE = (70, 61)  # 8,540 words: thirteen times 624 and some


def draw(state: Tensor, p: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(mask, state) that ATen has after drawing from `state`."""
    torch.set_rng_state(state)
    return torch.empty(SIZE, dtype=dtype).bernoulli_(p), torch.get_rng_state()


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1 / 3, 1.0])
@pytest.mark.parametrize("drawn", [0, 1, 2, 311, 623, 624, 625])
def test_masks_and_state_are_atens(p: float, drawn: int) -> None:
    """From every kind of place in the 624 words: none made yet, one left over, none left."""
    torch.manual_seed(drawn)
    torch.empty(drawn, dtype=torch.int32).random_()
    before = torch.get_rng_state()
    for dtype in (torch.bool, torch.float32):
        mask, after = draw(before, p, dtype)
        name = str(dtype).removeprefix("torch.")
        outputs, _ = build(lambda s: mersenne.bernoulli(s, SIZE, p, name), before.view(torch.int64))  # noqa: B023
        assert torch.equal(outputs[0], mask)
        assert torch.equal(outputs[1].view(torch.uint8), after)


def test_large_masks_are_native_and_draw_on_where_others_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        a = torch.nn.functional.dropout(x, 0.1)
        noise = torch.rand_like(x[:3])
        return a, noise, torch.nn.functional.dropout(a, 0.5), torch.nn.functional.dropout(noise, 0.2)

    x = torch.ones(100, 100)
    for ours in (True, False):
        monkeypatch.setattr(random, "_draws_by_the_twister", lambda: ours)  # noqa: B023
        torch._dynamo.reset()
        with record_graphs() as graphs:
            compiled = torch.compile(function, backend=relaxgrad, options={"fallback": "error", "cache": "off"})
            torch.manual_seed(7)
            seen = [compiled(x), compiled(x), torch.rand(3)]
        torch.manual_seed(7)
        expected = [function(x), function(x), torch.rand(3)]
        for one, other in zip(
            torch.utils._pytree.tree_leaves(seen), torch.utils._pytree.tree_leaves(expected), strict=True
        ):
            assert torch.equal(one, other)
        kinds = [node.kind for node in graphs[0].nodes if "bernoulli" in node.op]
        assert kinds.count(Kind.NATIVE) == (2 if ours else 0)
        assert len(kinds) == 3


@pytest.mark.parametrize("between", [False, True], ids=["one after the other", "others draw between"])
def test_the_state_is_fetched_and_put_back_once_for_masks_in_a_row(between: bool) -> None:
    def function(x: Tensor) -> Tensor:
        for number in range(4):
            x = torch.nn.functional.dropout(x, 0.1 + number / 10)
            if between and number == 1:
                x = x + torch.randn_like(x)
        return x

    x = torch.ones(100, 100)
    compiled = torch.compile(function, backend=relaxgrad, options={"fallback": "error", "cache": "off"})
    compiled(x)
    torch.manual_seed(3)
    with profile_kernels() as times:
        seen = [compiled(x), torch.rand(3)]
    torch.manual_seed(3)
    assert all(map(torch.equal, seen, [function(x), torch.rand(3)]))
    calls = {t.name: t.calls for t in times}
    assert calls["get_state"] == calls["set_state"] == (2 if between else 1)


def test_masks_of_symbolic_sizes_are_native() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, 0.1) + torch.nn.functional.dropout(x[1:], 0.5).sum()

    with record_graphs() as graphs:
        compiled = torch.compile(function, backend=relaxgrad, dynamic=True, options={"fallback": "error"})
        for size in ((70, 61), (3, 5), (129, 33)):
            x = torch.ones(size)
            torch.manual_seed(5)
            seen = [compiled(x), torch.rand(3)]
            torch.manual_seed(5)
            assert all(map(torch.equal, seen, [function(x), torch.rand(3)]))
    (graph,) = graphs
    assert [n.kind for n in graph.nodes if "bernoulli" in n.op] == [Kind.NATIVE, Kind.NATIVE]


def test_an_op_of_someone_else_may_draw_between() -> None:
    @torch.library.custom_op("relaxgrad_test::noise", mutates_args=())
    def noise(x: Tensor) -> Tensor:
        return torch.randn_like(x)

    noise.register_fake(torch.empty_like)

    def function(x: Tensor) -> Tensor:
        x = torch.nn.functional.dropout(x, 0.1)
        return torch.nn.functional.dropout(x + noise(x), 0.1)

    x = torch.ones(100, 100)
    compiled = torch.compile(function, backend=relaxgrad)
    torch.manual_seed(5)
    seen = [compiled(x), torch.rand(3)]
    torch.manual_seed(5)
    assert all(map(torch.equal, seen, [function(x), torch.rand(3)]))


def test_two_threads_do_not_draw_the_same_masks() -> None:
    def function(x: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.nn.functional.dropout(x, 0.5)
        return x

    x = torch.ones(300, 300)
    compiled = torch.compile(function, backend=relaxgrad)
    compiled(x)
    with ThreadPoolExecutor(2) as pool:
        masks = list(pool.map(lambda _: compiled(x), range(24)))
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(masks, 2))


def test_a_graph_that_fails_lets_the_generator_go() -> None:
    def function(x: Tensor, index: Tensor) -> Tensor:
        return torch.nn.functional.dropout(torch.nn.functional.dropout(x, 0.5)[index], 0.5)

    x, index = torch.ones(100, 100), torch.arange(100)
    compiled = torch.compile(function, backend=relaxgrad)
    compiled(x, index)
    with pytest.raises(IndexError):
        compiled(x, index + 1)
    with ThreadPoolExecutor(1) as pool:  # another thread gets it
        assert pool.submit(compiled, x, index).result(timeout=60).shape == x.shape


def test_this_torch_draws_by_the_twister() -> None:
    state = torch.get_rng_state()
    random._draws_by_the_twister.cache_clear()
    assert random._draws_by_the_twister()
    assert torch.equal(torch.get_rng_state(), state)
