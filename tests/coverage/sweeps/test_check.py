# SPDX-License-Identifier: Apache-2.0
"""The validation of a single call: every planted fault is found, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.capture import decompositions
from relaxgrad.coverage.harness import numbers
from relaxgrad.coverage.sweeps.call import Call, call_of
from relaxgrad.coverage.sweeps.check import Status, check_call
from relaxgrad.coverage.sweeps.values import copy_inputs, grown

Fault = Callable[[list[Any]], list[Any]]  # outputs of a graph -> the outputs that the graph returns


def faulty(forward: Fault = list, backward: Fault = list) -> Any:
    """A backend of PyTorch's own kernels with faults in what its graphs return."""

    def compiler(fault: Fault) -> Any:
        return lambda gm, _: torch_api.make_boxed_func(lambda *args: fault(list(gm(*args))))

    return torch_api.aot_backend(compiler(forward), compiler(backward), compiler(forward), decompositions("core_aten"))


def first(change: Callable[[Tensor], Tensor]) -> Fault:
    return lambda outputs: [change(outputs[0]), *outputs[1:]]


def call(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Call:
    torch.manual_seed(3)
    return Call(function, tuple(torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes))


def product(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b).sin()


def test_a_right_backend_passes() -> None:
    checked = check_call(call(product, (5, 7), (7, 3)), backend=faulty())
    assert checked.status is Status.PASS
    assert checked.outputs == {"out": "verified", "grad[0][0]": "verified", "grad[0][1]": "verified"}
    assert checked.backward
    assert checked.reference == "float64"


@pytest.mark.parametrize(
    ("fault", "name", "detail"),
    [
        ({"forward": first(lambda t: t * 1.0001)}, "out", "error too large"),
        ({"forward": first(lambda t: t.clone().index_fill_(0, torch.tensor(2), 0))}, "out", "error too large"),
        ({"forward": first(torch.zeros_like)}, "out", "all zero"),
        ({"forward": first(lambda t: t.clone().fill_(float("nan")))}, "out", "NaN or infinity"),
        ({"forward": first(lambda t: t.t().contiguous().t())}, "out", "strides (1, 5) against (3, 1)"),
        ({"backward": first(lambda t: t * 1.0001)}, "grad[0][0]", "error too large"),
        ({"backward": lambda outputs: [None, *outputs[1:]]}, "grad[0][0]", "missing"),
    ],
)
def test_a_fault_is_wrong(fault: dict[str, Fault], name: str, detail: str) -> None:
    checked = check_call(call(product, (5, 7), (7, 3)), backend=faulty(**fault))
    assert checked.status is Status.WRONG, checked.detail
    assert checked.outputs[name] == "wrong"
    assert checked.detail.startswith(f"{name}: ")
    assert detail in checked.detail


def test_float64_is_validated_more_finely_than_float32() -> None:
    double = call(product, (5, 7), (7, 3), dtype=torch.float64)
    assert check_call(double, backend=faulty()).status is Status.PASS
    rounded = faulty(first(lambda t: t.float().double()))
    assert check_call(double, backend=rounded).status is Status.WRONG


def test_a_backend_that_raises_is_an_error_and_eager_that_raises_is_not() -> None:
    def refuse(outputs: list[Any]) -> list[Any]:
        raise RuntimeError("no kernel")

    checked = check_call(call(product, (5, 7), (7, 3)), backend=faulty(refuse))
    assert checked.status is Status.ERROR
    assert "no kernel" in checked.detail
    assert check_call(call(product, (5, 7), (6, 3)), backend=faulty()).status is Status.EAGER


@pytest.mark.parametrize(
    ("function", "shape", "reason"),
    [(torch.sin, (0, 3), "no elements"), (torch.zeros_like, (3,), "zeros in eager as well")],
)
def test_what_proves_no_value_is_vacuous(function: Callable[..., Any], shape: tuple[int, ...], reason: str) -> None:
    checked = check_call(call(function, shape), backend=faulty())
    assert checked.status is Status.VACUOUS
    assert reason in checked.detail
    assert set(checked.outputs.values()) == {"untested"}


def test_zeros_prove_an_op_that_makes_zeros() -> None:
    making = call_of("new_zeros", lambda x: x.new_zeros(3), (torch.ones(2),), {}, True)
    assert check_call(making, backend=faulty()).status is Status.PASS
    assert check_call(making, backend=faulty(first(lambda t: t + 1e-3))).status is Status.WRONG


@pytest.mark.parametrize("change", [lambda t: t.new_empty(3, 0), lambda t: t.double()])
def test_a_wrong_shape_or_dtype_without_elements_is_wrong(change: Callable[[Tensor], Tensor]) -> None:
    checked = check_call(Call(torch.sin, (torch.ones(0, 3),)), backend=faulty(first(change)))
    assert checked.status is Status.WRONG


def test_memory_left_unset_is_not_compared() -> None:
    unset = Call(lambda x: torch.empty_like(x), (torch.ones(4),), unset=True)
    checked = check_call(unset, backend=faulty(first(lambda t: t.fill_(7))))
    assert (checked.status, checked.outputs) == (Status.PASS, {"out": "verified"})
    assert check_call(unset, backend=faulty(first(lambda t: t.double()))).status is Status.WRONG


def test_random_values_are_validated_at_equal_seed() -> None:
    noisy = call(lambda x: x + torch.rand_like(x), (40,))
    assert check_call(noisy, backend=faulty()).status is Status.PASS
    drawn_again = faulty(first(lambda t: torch.rand_like(t)))
    assert check_call(noisy, backend=drawn_again).status is Status.WRONG


def test_written_inputs_are_compared() -> None:
    def write(x: Tensor, buffer: Tensor) -> Tensor:
        buffer.add_(x.detach().sum(0))
        return x * 2

    inputs = (torch.randn(3, 4).requires_grad_(), torch.randn(4))
    checked = check_call(Call(write, inputs), backend=faulty())
    assert checked.status is Status.PASS
    assert checked.outputs["input[0][1]"] == "verified"
    wrong = faulty(lambda outputs: [t * 1.01 for t in outputs])
    assert check_call(Call(write, inputs), backend=wrong).status is Status.WRONG


def test_plain_numbers_are_compared() -> None:
    counted = call(lambda x: (x * 2, x.shape[0]), (3, 4))
    assert check_call(counted, backend=faulty()).outputs["out[1]"] == "verified"


def test_a_call_that_breaks_the_graph_says_so() -> None:
    def branch(x: Tensor) -> Tensor:
        return x.sin() if x.sum().item() > 1e9 else x.cos()

    checked = check_call(call(branch, (4,)), backend=faulty())
    assert (checked.status, checked.capture) == (Status.PASS, "breaks")


def test_a_second_size_goes_through_the_same_graph() -> None:
    checked = check_call(call(product, (5, 7), (7, 3)), dynamic=True, backend=faulty())
    assert (checked.status, checked.sizes) == (Status.PASS, 2)

    def only_five(outputs: list[Any]) -> list[Any]:
        return [t * 2 if isinstance(t, Tensor) and t.shape[0] != 5 else t for t in outputs]

    checked = check_call(call(lambda a: a.sin(), (5, 7)), dynamic=True, backend=faulty(only_five))
    assert checked.status is Status.WRONG
    assert checked.detail.startswith("second size: out")


def test_the_bridge_is_validated_with_kinds() -> None:
    checked = check_call(call(product, (5, 7), (7, 3)))
    assert checked.status is Status.PASS
    assert checked.calls["library"] == 3
    assert checked.ops["aten.sin.default"] == {"native": 1}
    assert checked.graphs == 2
    checked = check_call(call(lambda x: x.sin(), (5, 7)), dynamic=True)
    assert (checked.status, checked.symbolic, checked.sizes) == (Status.PASS, True, 2)


def test_copies_keep_layout_and_shared_memory() -> None:
    base = torch.randn(4, 6)
    given = [base, base[1:, ::2], base.t(), base.select(0, 1).expand(3, 6)]
    copies = copy_inputs(given, None)
    for tensor, copied in zip(given, copies, strict=True):
        assert torch.equal(tensor, copied)
        assert (tensor.stride(), tensor.storage_offset()) == (copied.stride(), copied.storage_offset())
        assert copied.data_ptr() != tensor.data_ptr()
    copies[0].fill_(5)
    assert bool((copies[1] == 5).all())
    assert not bool((base == 5).any())
    wide = copy_inputs((torch.ones(2).requires_grad_(), torch.ones(2, dtype=torch.int64)), torch.float64)
    assert [t.dtype for t in wide] == [torch.float64, torch.int64]
    assert wide[0].requires_grad


def test_the_reference_has_the_same_inputs_in_float64() -> None:
    given = [torch.randn(7, 3).requires_grad_() for _ in range(6)]
    for _ in range(20):
        with numbers.float64_run():
            wide = copy_inputs(given, torch.float64)
        assert all(torch.equal(w, g.double()) for w, g in zip(wide, given, strict=True))


def test_a_grown_size_grows_everywhere() -> None:
    args, kwargs = next(grown((torch.arange(12.0).reshape(4, 3), torch.arange(4)), {}))
    assert kwargs == {}
    assert [tuple(t.shape) for t in args] == [(5, 3), (5,)]
    assert args[1].tolist() == [0, 1, 2, 3, 0]
    assert torch.equal(args[0][4], args[0][0] * 0.9375)


@pytest.mark.parametrize("given", [[2, 0], [0, 2], [0, 0], [1, 0], [0, 7]])
def test_a_pick_among_equal_values_is_free_and_any_other_is_not(given: list[int]) -> None:
    values = torch.tensor([5.0, 1.0, 5.0])
    picking = faulty(lambda outputs: [outputs[0], torch.tensor(given)])
    checked = check_call(Call(lambda x: torch.topk(x, 2), (values,), picks=True), backend=picking)
    assert (checked.status is Status.PASS) == (sorted(given) == [0, 2])


@pytest.mark.parametrize(
    ("given", "right"), [([0, 1, 1], True), ([1, 1, 1], True), ([0, 0, 1], False), ([1, 0, 1], False)]
)
def test_the_gradient_of_another_pick_lies_where_it_picked(given: list[int], right: bool) -> None:
    """The largest of [5, 5], [1, 5] and [2, 2]: eager takes one of the equal ones, the planted graph another.

    The stand-in returns `given` as the indices, and saves them for its backward.
    """
    values = torch.tensor([[5.0, 5.0], [1.0, 5.0], [2.0, 2.0]], requires_grad=True)
    eager = values.detach().max(1).indices.tolist()
    assert eager == [0, 1, 0]

    def change(outputs: list[Tensor]) -> list[Tensor]:
        return [torch.tensor(given) if o.dtype is torch.int64 and o.shape == (3,) else o for o in outputs]

    checked = check_call(Call(lambda x: x.max(1), (values,), picks=True), backend=faulty(change))
    assert (checked.status is Status.PASS) == right, checked.detail
    assert checked.backward


def test_exact_zeros_for_rounding_noise_are_no_fault() -> None:
    def noise(x: Tensor) -> Tensor:
        return (x * 0.1) * 10 - x

    checked = check_call(Call(noise, (torch.linspace(0.1, 1, 50),)), backend=faulty(first(torch.zeros_like)))
    assert checked.status is Status.VACUOUS
    assert checked.detail == "zero up to rounding"


def test_rounding_noise_for_exact_zeros_is_no_fault_and_more_is() -> None:
    def cancels(x: Tensor) -> Tensor:
        return torch.atan2(x, x)  # its gradient is y / (x² + y²) - x / (x² + y²) = 0

    given = Call(cancels, (torch.tensor([1.0, 0.5, 2.0]).requires_grad_(),))
    for noise, status in ((2e-8, Status.PASS), (1e-4, Status.WRONG)):
        checked = check_call(given, backend=faulty(backward=first(lambda t, noise=noise: t + noise)))  # type: ignore[misc]
        assert checked.status is status, checked.detail


def test_a_fault_of_the_graph_itself_is_told_from_one_of_the_backend() -> None:
    broken = call(product, (5, 7), (7, 3))
    checked = check_call(broken, backend=faulty(first(lambda t: t * 2)))
    assert not checked.by_torch

    def refused(x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return x.cos()
        return x.sin()

    checked = check_call(call(refused, (4,)))
    assert checked.status is Status.WRONG
    assert checked.by_torch
    assert checked.detail.endswith("[PyTorch's own kernels in the same graph fail too]")
