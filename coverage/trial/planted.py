# SPDX-License-Identifier: Apache-2.0
"""Faults planted in one op of a training graph, run in PyTorch's own kernels, and validated.

A model is traced once; its graphs run node by node, and one fault at a time is active at one node. A fault that leaves
every number as it was (a row of indices that are all equal, a mask element in front of zeros) is none, and not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch import Tensor

from relaxgrad.bridge import torch_api

from ..harness import numbers
from ..harness.conditioning import FLOAT64_AGREES, Build, EagerSpread, conditioning, float64_difference
from ..harness.problem import Problem, copy_tensors, map_tensors, seed_everything
from ..zoo import ZOO

aten = torch.ops.aten

#: (the op, its arguments) -> what the faulty op returns.
Faulty = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True)
class Kind:
    """A kind of fault, and the ops that it is planted in."""

    name: str
    ops: frozenset[Any]
    run: Faulty
    applies: Callable[[torch.fx.Node], bool] = lambda node: True


def _index_off_by_one(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One element in the middle of the first integer tensor is one less (one more where it is 0)."""
    done = False

    def shift(value: Any) -> Any:
        nonlocal done
        if done or not isinstance(value, Tensor) or value.is_floating_point() or value.dtype is torch.bool:
            return value
        done = True
        moved = value.clone(memory_format=torch.contiguous_format)
        flat = moved.view(-1)
        middle = len(flat) // 2
        flat[middle] += -1 if flat[middle] > 0 else 1
        return moved

    return op(*map_tensors(args, shift), **kwargs)


def _one_mask_element(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One element of a dropout mask is the other way round."""
    drawn = op(*args, **kwargs)
    if not isinstance(drawn, tuple):  # bernoulli
        flat = drawn.view(-1)
        flat[len(flat) // 2] = 1 - flat[len(flat) // 2]
        return drawn
    out, mask = drawn[0].clone(), drawn[1].clone()  # native_dropout
    where = mask.numel() // 2
    kept = bool(mask.view(-1)[where])
    mask.view(-1)[where] = not kept
    out.view(-1)[where] = 0 if kept else args[0].reshape(-1)[where] / (1 - args[1])
    return out, mask


def _lacks_a_row(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A sum over rows leaves out the last one: a loop that ends one too early."""
    x = args[0].clone()
    x.select(args[1][0], -1).zero_()
    return op(x, *args[1:], **kwargs)


def _sums_rows(x: Any, dims: Any, *_: Any) -> bool:
    return len(dims) == 1 and x.meta["val"].shape[dims[0]] > 1


def _in_bf16(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Floating-point arguments are rounded to bfloat16; the op itself runs in float32."""
    rounded: Callable[[Tensor], Tensor] = lambda t: t.bfloat16().to(t.dtype) if t.is_floating_point() else t  # noqa: E731
    return op(*map_tensors(args, rounded), **map_tensors(kwargs, rounded))


def _n_minus_one(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A mean, or the variance inside a norm, divides by n - 1; the running variance of a batch norm by n."""
    found = op(*args, **kwargs)
    if op is aten.mean.dim:
        count = args[0].numel() // max(found.numel(), 1)
        return found * (count / (count - 1))
    if op is aten.native_layer_norm.default:
        out, mean, rstd = found
        count = 1
        for size in args[1]:
            count *= size
        shrink = (1 - 1 / count) ** 0.5
        bias = 0.0 if args[3] is None else args[3]
        return (out - bias) * shrink + bias, mean, rstd * shrink
    out, mean, rstd, running_mean, running_var = found
    momentum, count = args[6], args[0].numel() // args[0].shape[1]
    fresh = (running_var - (1 - momentum) * args[4]) * ((count - 1) / count)
    return out, mean, rstd, running_mean, (1 - momentum) * args[4] + fresh


def _tanh_gelu(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return op(*args, **kwargs | {"approximate": "tanh"})


KINDS = (
    Kind(
        "an index off by one in one element",
        frozenset({
            aten.embedding.default, aten.embedding_dense_backward.default, aten.gather.default, aten.index.Tensor,
            aten.index_select.default, aten.nll_loss_forward.default, aten.nll_loss_backward.default,
            aten.max_pool2d_with_indices_backward.default, aten.scatter.value, aten.scatter.src,
        }),
        _index_off_by_one,
    ),
    Kind(
        "one element of a dropout mask",
        frozenset({aten.native_dropout.default, aten.bernoulli.p}),
        _one_mask_element,
    ),
    Kind(
        "a bias gradient lacking a row",
        frozenset({aten.sum.dim_IntList}),
        _lacks_a_row,
        lambda node: _sums_rows(*node.args),
    ),
    Kind(
        "bfloat16 in one op",
        frozenset({
            aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default,
            aten.convolution_backward.default, aten._softmax.default, aten.native_layer_norm.default,
            aten.native_layer_norm_backward.default, aten._native_batch_norm_legit_functional.default,
            aten.native_batch_norm_backward.default, aten.gelu.default, aten.tanh_backward.default,
        }),
        _in_bf16,
    ),
    Kind(
        "n - 1 for n, or n for n - 1",
        frozenset({
            aten.mean.dim, aten.native_layer_norm.default, aten._native_batch_norm_legit_functional.default,
        }),
        _n_minus_one,
    ),
    Kind(
        "tanh GELU for erf",
        frozenset({aten.gelu.default, aten.gelu_backward.default}),
        _tanh_gelu,
        lambda node: node.kwargs.get("approximate", "none") == "none",
    ),
)  # fmt: skip
MISSING = "a bias gradient missing"


@dataclass
class Traced:
    """The graphs of one training step, run node by node; `active` is the node that is faulty, and how."""

    graphs: list[torch.fx.GraphModule] = field(default_factory=list)
    active: tuple[int, str] | None = None
    faulty: Faulty | None = None

    def backend(self) -> Callable[..., Any]:
        """A backend for torch.compile that runs AOTAutograd's graphs, core ops whole, through this."""

        def compiler(gm: torch.fx.GraphModule, _: Any) -> Any:
            number = len(self.graphs)
            self.graphs.append(gm)
            return torch_api.make_boxed_func(lambda *args: _Run(gm, self, number).run(*args))

        return torch_api.aot_backend(compiler, compiler, compiler, {})

    def sites(self) -> Iterator[tuple[Kind, int, torch.fx.Node]]:
        """Every place where a fault can be planted."""
        for kind in KINDS:
            for number, gm in enumerate(self.graphs):
                for node in gm.graph.nodes:
                    if node.op == "call_function" and node.target in kind.ops and kind.applies(node):
                        yield kind, number, node


class _Run(torch.fx.Interpreter):
    def __init__(self, gm: torch.fx.GraphModule, traced: Traced, number: int):
        super().__init__(gm)
        self._traced, self._number = traced, number

    def run_node(self, n: torch.fx.Node) -> Any:
        if self._traced.active != (self._number, n.name):
            return super().run_node(n)
        assert self._traced.faulty is not None
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return self._traced.faulty(n.target, tuple(args), dict(kwargs))


def try_faults(model: str, seed: int, most: int) -> list[dict[str, Any]]:
    """Plants up to `most` faults of each kind in a model of the zoo, spread over its graphs, one at a time.

    A row a fault: {"model", "seed", "kind", "node", "right": whether the grade *right* lets it pass, "as_eager":
    whether the stricter one does, "times": the largest error in units of eager's, "covered": whether eager's variants
    go as far, "excused": whether the fault in float64 does not show either, so that it is called ill-conditioned}.
    """

    def build() -> Problem:
        return ZOO[model].build(seed)

    reference, eager = numbers.float64_step(build(), seed), eager_step(build(), seed)
    spread = EagerSpread(build, seed, reference, eager, steps=1)
    problem, traced = build(), Traced()
    torch.compiler.reset()
    state = copy_tensors(problem.module.state_dict())
    step = torch.compile(problem.step_function(), backend=traced.backend())

    def values() -> numbers.StepValues:
        problem.module.load_state_dict(state)
        problem.module.zero_grad()
        seed_everything(seed)
        loss = problem.loss_of(step(*problem.args, **problem.kwargs))
        loss.backward()
        return numbers.step_values(problem, loss)

    clean = values()
    if any(not c.right for c in validate(reference, eager, clean)):
        raise RuntimeError(f"{model}: the graphs are not right before a fault is planted")
    sites: dict[Kind, list[tuple[int, torch.fx.Node]]] = {}
    for kind, number, node in traced.sites():
        sites.setdefault(kind, []).append((number, node))
    rows = []
    covered: list[tuple[dict[str, Any], int, Kind]] = []
    for kind, places in sites.items():
        for number, node in _spread(places, most):
            traced.active, traced.faulty = (number, node.name), kind.run
            found = _row(model, seed, kind.name, node.name, reference, eager, clean, values(), spread)
            covered += [(row, number, kind) for row in found if row["covered"]]
            rows += found
    traced.active = None
    for name in _spread([n for n, g in clean.gradients.items() if g is not None and n.endswith("bias")], most):
        gradients = clean.gradients | {name: None}
        result = numbers.StepValues(clean.loss, gradients, clean.buffers)
        rows += _row(model, seed, MISSING, name, reference, eager, clean, result, spread)
    for row, number, kind in covered:  # last: each forgets what was compiled
        row["excused"] = _hides_in_float64(build, seed, number, row["node"], kind)
    return rows


def _hides_in_float64(build: Build, seed: int, number: int, node: str, kind: Kind) -> bool:
    """Whether the step in float64 agrees with eager's in spite of the fault in it."""
    wide = Traced(active=(number, node), faulty=kind.run)
    difference, _ = float64_difference(build, seed, lambda module: torch.compile(module, backend=wide.backend()))
    return difference is not None and difference <= FLOAT64_AGREES


def _row(
    model: str,
    seed: int,
    kind: str,
    node: str,
    reference: numbers.StepValues,
    eager: numbers.StepValues,
    clean: numbers.StepValues,
    result: numbers.StepValues,
    spread: EagerSpread,
) -> list[dict[str, Any]]:
    """The row of one fault; none where it left everything as it was."""
    if _equal(clean, result):
        return []
    found = validate(reference, eager, result)
    right = all(c.right for c in found)
    covered = not right and conditioning(seed, reference, eager, result, spread).covered
    return [
        {
            "model": model,
            "seed": seed,
            "kind": kind,
            "node": node,
            "right": right,
            "as_eager": all(c.passed for c in found),
            "times": times_eager(found),
            "covered": covered,
            "excused": False,
        }
    ]


def times_eager(found: list[numbers.Comparison]) -> float | None:
    """The largest finite error in units of eager's; None where nothing tells one."""
    return max((c.times_eager for c in found if 0 < c.times_eager < float("inf")), default=None)


def validate(
    reference: numbers.StepValues, eager: numbers.StepValues, result: numbers.StepValues
) -> list[numbers.Comparison]:
    """Loss, gradients and buffers; what eager has as zeros tells nothing and is left out."""
    found = (c for _, c in numbers.compare_steps(reference, eager, result))
    return [c for c in found if c.verdict is not numbers.Verdict.EMPTY]


def _equal(a: numbers.StepValues, b: numbers.StepValues) -> bool:
    pairs: list[tuple[Tensor | None, Tensor | None]] = [(a.loss, b.loss)]
    pairs += [(tensor, b.gradients.get(name)) for name, tensor in a.gradients.items()]
    pairs += [(tensor, b.buffers.get(name)) for name, tensor in a.buffers.items()]
    return all((x is None and y is None) or (x is not None and y is not None and numbers.same(x, y)) for x, y in pairs)


def _spread(places: list[Any], most: int) -> list[Any]:
    """At most `most` of them, evenly over the list."""
    if len(places) <= most:
        return places
    return [places[round(i * (len(places) - 1) / (most - 1))] for i in range(most)]


def eager_step(problem: Problem, seed: int) -> numbers.StepValues:
    seed_everything(seed)
    loss = problem.loss(problem.module(*problem.args, **problem.kwargs))
    loss.backward()
    return numbers.step_values(problem, loss)
