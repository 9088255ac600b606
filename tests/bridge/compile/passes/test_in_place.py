# SPDX-License-Identifier: Apache-2.0
"""New values of inputs in the memory of the old ones: only where nothing reads the old value any more."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from relaxgrad.bridge.backend import relaxgrad
from relaxgrad.bridge.plan import FromFunction, InPlace
from relaxgrad.bridge.runtime.executable import Executable
from relaxgrad.coverage.harness.numbers import float64_run
from tests.accuracy import as_accurate
from tests.bridge.compile.kernels import keep_scheduled

OPTIONS = {"cache": "off", "compile_in": "here", "on_compile_error": "raise"}


def compiled(function: Callable[..., Any], dynamic: bool | None = None) -> Callable[..., Any]:
    torch.compiler.reset()
    return torch.compile(function, backend=relaxgrad, options=OPTIONS, dynamic=dynamic)


def in_place(function: Callable[..., Any], *args: torch.Tensor, dynamic: bool | None = None) -> int:
    """How many inputs the kernels of `function` write in place; all values are eager's, in two calls."""
    before = set(Executable.live)
    ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
    run = compiled(function, dynamic)
    for _ in range(2):
        torch.testing.assert_close(run(*ours), function(*theirs))
        torch.testing.assert_close(ours, theirs)
    (executable,) = set(Executable.live) - before
    return sum(isinstance(m.source, InPlace) for m in executable.plan.mutations)


def adamw(count: int = 2, size: Sequence[int] = (8, 20)) -> torch.optim.AdamW:
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(*size)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return torch.optim.AdamW(parameters, lr=1e-2)


def tensors_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    parameters = optimizer.param_groups[0]["params"]
    return [p.detach() for p in parameters] + [t for p in parameters for t in optimizer.state[p].values()]


def test_an_optimizer_writes_nothing_but_its_own_tensors() -> None:
    ours, theirs = adamw(), adamw()
    ours.step()
    theirs.step()  # makes the moments
    with float64_run():
        exact = adamw()
        exact.step()
    before = set(Executable.live)
    step = compiled(lambda: ours.step())
    addresses = [t.data_ptr() for t in tensors_of(ours)]
    for _ in range(3):
        step()
        theirs.step()
        exact.step()
    (executable,) = set(Executable.live) - before
    # parameter, two moments and the count of steps of both
    assert [type(m.source) for m in executable.plan.mutations] == [InPlace] * 8
    assert executable.plan.result_count == 0
    assert [t.data_ptr() for t in tensors_of(ours)] == addresses
    as_accurate(tensors_of(exact), tensors_of(theirs), tensors_of(ours))


def test_autograd_learns_of_the_write() -> None:
    """Eager refuses a backward whose saved tensors were written in the meantime."""
    optimizer = adamw(1)
    (parameter,) = optimizer.param_groups[0]["params"]
    optimizer.step()
    step = compiled(lambda: optimizer.step())
    step()
    loss = (parameter**2).sum()
    step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_what_is_read_elsewhere_or_later_is_copied() -> None:
    x = torch.randn(8, 16)

    def read_in_another_place(x: torch.Tensor) -> None:
        x.add_(x.flip(0))

    def read_by_a_neighbour(x: torch.Tensor) -> None:
        x.mul_(x[:, :1] + 1)

    def turned(x: torch.Tensor) -> None:
        x.copy_(x.reshape(16, 8).t() * 1)

    def old_value_of_a_view(x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1) * 1
        x.add_(1)
        return flat

    assert in_place(read_in_another_place, x) == 0
    assert in_place(read_by_a_neighbour, x) == 0
    assert in_place(turned, x) == 0
    in_place(old_value_of_a_view, x)  # right, whichever way


def test_the_old_value_in_a_result_is_right() -> None:
    def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        product = x @ x.t()
        old = x.sin()
        x.mul_(y).add_(old)
        return product, old, x.sum(), product @ x

    in_place(both, torch.randn(8, 8), torch.randn(8, 8))


def test_two_inputs_that_trade_their_values() -> None:
    def swap(x: torch.Tensor, y: torch.Tensor) -> None:
        old = x.clone()
        x.copy_(y)
        y.copy_(old)

    in_place(swap, torch.randn(4, 16), torch.randn(4, 16))


def test_values_that_depend_on_each_other_in_turns() -> None:
    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        x.mul_(0.9).add_(z)
        y.mul_(0.5).addcmul_(x, z)
        z.sub_(y / (x.abs() + 1))
        return x * y

    for shape in ((3, 5), (8, 64), (130, 96), ()):
        args = [torch.randn(shape) for _ in range(3)]
        assert in_place(f, *args) >= 1
    assert in_place(f, *(torch.randn(7, 40) for _ in range(3)), dynamic=True) >= 1
    assert in_place(lambda x, y: x.mul_(y.shape[0]).add_(y), torch.randn(7, 40), torch.randn(7, 40), dynamic=True) == 1


def test_layouts() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> None:
        x.mul_(0.5).add_(y)

    x, y = torch.randn(2, 16, 6, 6), torch.randn(2, 16, 6, 6)
    last = {"memory_format": torch.channels_last}
    assert in_place(f, x, y) == 1
    assert in_place(f, x.to(**last), y.to(**last)) == 1
    in_place(f, x.to(**last), y)
    assert in_place(f, torch.randn(16, 16).t(), torch.randn(16, 16)) == 1
    rows = torch.randn(8, 8)
    written = compiled(lambda x: x.mul_(2))
    for view in (rows[:, ::2], rows[1:, 1:], rows.expand(2, 8, 8)[0]):
        expected = view * 2
        written(view)
        assert torch.equal(view, expected)


def test_an_input_that_is_another_input_too() -> None:
    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> None:
        x.add_(y.flip(0)).mul_(z)

    ours, theirs = torch.arange(40.0), torch.arange(40.0)
    for call, memory in ((compiled(f), ours), (f, theirs)):
        call(memory[:16], memory[24:], memory[:16])
    assert torch.equal(ours, theirs)


def test_inputs_that_overlap_in_a_later_call_alone() -> None:
    """Nothing guards that: what the graph computes is what it does when all is read before anything is written."""
    size = 1 << 14
    run = compiled(lambda x, y: x.add_(y.sin()))
    ours = torch.randn(2 * size)
    run(ours[:size], ours[size:])
    theirs = ours.clone()
    for first in (16, size - 16, 0):
        run(ours[first : first + size], ours[:size])
        theirs[first : first + size].add_(theirs[:size].sin())
        torch.testing.assert_close(ours, theirs)


def test_as_many_dims_as_a_tensor_has() -> None:
    x, y = torch.randn(3, *[1] * 16), torch.randn(3, *[1] * 16)
    in_place(lambda x, y: x.mul_(2).add_(y), x, y)
    assert in_place(lambda x, y: x.mul_(2).add_(y), x.flatten(), y.flatten()) == 1


def test_a_row_kernel_and_numbers_beside_it() -> None:
    assert in_place(lambda x, y: x.mul_(x[0, 0].exp()).add_(y), torch.randn(8, 64), torch.randn(8, 64)) == 0
    in_place(lambda x: x.sub_(x.logsumexp(-1, keepdim=True)), torch.randn(8, 64))
    assert in_place(lambda x, y: (x.mul_(2), y.sin() * x), torch.randn(8, 64), torch.randn(8, 64)) == 1


def test_a_stored_plan_writes_in_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RELAXGRAD_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("RELAXGRAD_CACHE", raising=False)
    for _ in range(2):
        torch.compiler.reset()
        gc.collect()  # so that the second compilation finds the graph on disk
        before = set(Executable.live)
        x, y = torch.randn(8, 48), torch.randn(8, 48)
        expected = x * 0.25 + y
        torch.compile(lambda x, y: x.mul_(0.25).add_(y), backend=relaxgrad)(x, y)
        torch.testing.assert_close(x, expected)
        (executable,) = set(Executable.live) - before
        assert [type(m.source) for m in executable.plan.mutations] == [InPlace]
        del executable
    assert list((tmp_path / "graphs").glob("*.so"))


def test_a_tensor_of_inference_mode_is_refused_as_in_eager() -> None:
    with torch.inference_mode():
        x = torch.zeros(16)
        run = compiled(lambda x: x.add_(1))
        run(x)
        assert torch.equal(x, torch.ones(16))
    with pytest.raises(RuntimeError, match="inference tensor"):
        run(x)


def test_a_buffer_of_a_module_in_training() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(16, 16)
            self.register_buffer("mean", torch.zeros(16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(x) * (self.mean + 1)  # the backward wants the old mean
            with torch.no_grad():
                self.mean.mul_(0.9).add_(0.1)
            return y.sin()

    torch.manual_seed(0)
    ours = Counting()
    theirs = copy.deepcopy(ours)
    x = torch.randn(4, 16)
    run = compiled(ours)
    for _ in range(3):
        for model, call in ((ours, run), (theirs, theirs)):
            model.zero_grad()
            call(x).sum().backward()
        torch.testing.assert_close(ours.mean, theirs.mean)
        assert theirs.linear.weight.grad is not None
        torch.testing.assert_close(ours.linear.weight.grad, theirs.linear.weight.grad)


def test_a_plan_without_the_results_that_are_written() -> None:
    from relaxgrad.bridge.plan import CallingPlan, Mutation

    sources = [Mutation(0, FromFunction(0)), Mutation(1, FromFunction(2)), Mutation(3, FromFunction(3))]
    plan = CallingPlan([], [], [], 4, 0, [], sources, [FromFunction(1), FromFunction(4)], 5, [])
    found = plan.in_place({0: 7, 3: 9})
    assert found.result_count == 3
    assert found.mutations == [Mutation(0, InPlace(7)), Mutation(1, FromFunction(1)), Mutation(3, InPlace(9))]
    assert found.outputs == [FromFunction(0), FromFunction(2)]
    assert plan.in_place({}) == plan


def test_numbers_are_computed_once_for_a_whole_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """AdamW's powers of the step count, and one nest of loops over the elements."""
    seen = keep_scheduled(monkeypatch)
    optimizer = adamw(1, (64, 48))
    optimizer.step()
    compiled(lambda: optimizer.step())()
    (kernel,) = (text for text in seen if "T.pow" in text)
    body = kernel[kernel.index("T.func_attr") :]
    assert body.count("T.pow") == 2
    assert body.rindex("T.pow") < body.index("for ")
    assert body.count("T.grid") == 1
