# SPDX-License-Identifier: Apache-2.0
"""The decomposition tables: training semantics kept, random numbers eager's, each own entry equal to ATen's op."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.capture import capture_joint, capture_pair, decompositions, is_core, non_core_ops
from relaxgrad.bridge.capture.decompose import diagonal_scatter, is_random, native_dropout, var_mean
from relaxgrad.bridge.schemas import GraphKind, OutputRole
from relaxgrad.coverage.harness.numbers import float64_run
from tests.accuracy import as_accurate, widened
from tests.bridge.capture.models import run_by_pytorch

aten = torch.ops.aten


def traced(function: Callable[..., Any], *args: torch.Tensor) -> torch.fx.GraphModule:
    gm = make_fx(function, decomposition_table=decompositions())(*args)
    gm.graph.eliminate_dead_code()  # as AOTAutograd does
    gm.recompile()
    return gm


def calls(gm: torch.fx.GraphModule) -> list[Any]:
    return [n.target for n in gm.graph.nodes if n.op == "call_function"]


def test_the_tables() -> None:
    assert decompositions("none") == {}
    table = decompositions("core_aten")
    assert aten.silu.default in table
    for op in (
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten.embedding_dense_backward.default,
        aten.bernoulli.default,
        aten.rrelu_with_noise.default,
    ):
        assert op not in table, op
    table.clear()
    assert decompositions("core_aten"), "a fresh copy each time"


def test_no_entry_replaces_a_random_op() -> None:
    own = {aten.native_dropout.default}  # draws through bernoulli, in ATen's order
    wrong = [op for op in decompositions() if is_random(op) and op not in own]
    assert wrong == []
    assert is_random(aten.bernoulli.p)
    assert not is_random(aten.mm.default)
    assert torch_api.core_aten_decompositions().keys() - decompositions().keys(), "some were taken out"


def strided(shape: tuple[int, ...], order: tuple[int, ...]) -> torch.Tensor:
    """A tensor of `shape` whose memory runs in `order` of dimensions."""
    base = torch.randn([shape[d] for d in order])
    return base.permute([order.index(d) for d in range(len(shape))])


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 4, 5), (3, 1, 17)])
def test_dropout_masks_are_eagers_in_every_memory_order(shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    x = strided(shape, order)
    torch.manual_seed(5)
    eager = F.dropout(x, 0.4)
    state = torch.get_rng_state()
    torch.manual_seed(5)
    output, mask = native_dropout(x, 0.4, True)
    assert torch.equal(output, eager)
    assert torch.equal(mask, eager != 0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("view", ["expanded", "sliced", "transposed slice", "0-d", "empty", "large"])
def test_dropout_masks_are_eagers_for_views(view: str) -> None:
    x = {
        "expanded": torch.randn(4, 1, 3).expand(4, 5, 3),
        "sliced": torch.randn(4, 9)[:, ::2],
        "transposed slice": torch.randn(6, 9)[1:4, 2:7].t(),
        "0-d": torch.randn(()),
        "empty": torch.randn(3, 0),
        "large": torch.randn(7, 400, 30).transpose(0, 2),
    }[view]
    torch.manual_seed(5)
    eager = F.dropout(x, 0.4)
    torch.manual_seed(5)
    output, mask = native_dropout(x, 0.4, True)
    assert torch.equal(output, eager)
    assert mask.shape == x.shape
    assert mask.dtype == torch.bool


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("train", [True, False, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_native_dropout_is_atens(p: float, train: bool | None, dtype: torch.dtype) -> None:
    x = torch.randn(6, 7).to(dtype)
    torch.manual_seed(5)
    wanted = aten.native_dropout.default(x, p, train)
    torch.manual_seed(5)
    found = native_dropout(x, p, train)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def test_a_dropout_in_a_graph_is_one_random_op() -> None:
    gm = traced(lambda x: aten.native_dropout.default(x, 0.3, True)[0], torch.randn(3, 4).t())
    assert calls(gm).count(aten.bernoulli.p) == 1
    assert aten.native_dropout.default not in calls(gm)
    assert non_core_ops(gm) == {"aten.bernoulli.p": 1}


SHAPES = [((4, 5, 6), [0, 2]), ((4, 5, 6), None), ((4, 5, 6), []), ((4, 5, 6), [-1]), ((), None), ((1, 3), [0])]


@pytest.mark.parametrize(("shape", "dim"), [*SHAPES, ((0, 3), [0]), ((3, 0), [0])])
@pytest.mark.parametrize("correction", [None, 0, 1, 2.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_var_mean_is_atens(
    shape: tuple[int, ...], dim: list[int] | None, correction: float | None, dtype: torch.dtype
) -> None:
    x = (torch.randn(shape) * 3 + 1).to(dtype)
    for keepdim in (False, True):
        wanted = aten.var_mean.correction(x, dim, correction=correction, keepdim=keepdim)
        found = var_mean(x, dim, correction=correction, keepdim=keepdim)
        for one, other in zip(found, wanted, strict=True):
            assert one.shape == other.shape
            torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("offset", [-3, -1, 0, 2])
@pytest.mark.parametrize(("dim1", "dim2"), [(0, 1), (2, 0), (-1, 1)])
def test_diagonal_scatter_is_atens(offset: int, dim1: int, dim2: int) -> None:
    x = torch.randn(4, 5, 6)
    source = torch.randn_like(x.diagonal(offset, dim1, dim2))
    assert torch.equal(diagonal_scatter(x, source, offset, dim1, dim2), x.diagonal_scatter(source, offset, dim1, dim2))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.max(),
        lambda x: x.min(),
        lambda x: x.new_empty_strided((2, 3), (3, 1)).zero_(),
        lambda x: torch.linalg.vector_norm(x, 3.0, [1]),
        lambda x: torch.diagonal_scatter(x, x[0, :4]),
        lambda x: torch.std_mean(x, 1),
        lambda x: F.layer_norm(x, (5,)),
        lambda x: F.rms_norm(x, (5,)),
        lambda x: torch.lerp(x, x + 1, 0.3),
        lambda x: torch.addcdiv(x, x, x + 9, value=0.3),
    ],
)
def test_ops_outside_core_aten_are_taken_apart(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(4, 5)
    gm = traced(function, x)
    in_place = {aten.copy_.default, aten.add_.Scalar}  # make_fx alone does not functionalize
    assert [op for op in calls(gm) if not is_core(op) and op not in in_place] == []
    torch.testing.assert_close(gm(x), function(x))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_flash_attention_stays_a_pair_with_right_gradients() -> None:
    module, x = Attention(), torch.randn(2, 5, 8)
    graph = capture_joint(module, (x,), loss=lambda y: y.square().sum())
    ops = graph.ops()
    assert ops["aten._scaled_dot_product_flash_attention_for_cpu.default"] == 1
    assert ops["aten._scaled_dot_product_flash_attention_for_cpu_backward.default"] == 1
    found = run_by_pytorch(graph, module, (x,), {})
    eager, exact = (
        torch.autograd.grad(run(given).square().sum(), run.project.weight)
        for run, given in ((module, x), (copy.deepcopy(module).double(), x.double()))
    )
    as_accurate(exact, eager, (found[OutputRole.GRADIENT, "project.weight"],))


class Everything(nn.Module):
    """Convolution, batch norm, pooling, embedding with repeated tokens, dropout, layer norm, GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.2), nn.MaxPool2d(2))
        self.embed = nn.Embedding(5, 9, padding_idx=0)
        self.rest = nn.Sequential(nn.LayerNorm(9), nn.GELU(), nn.Dropout(0.2), nn.Linear(9, 3))

    def forward(self, image: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        image = self.conv(image).flatten(2).mean(1)
        return F.cross_entropy(self.rest(image + self.embed(tokens).mean(1)), tokens[:, 0] % 3)


def test_a_model_has_no_residue_but_random_ops_and_writes() -> None:
    args = (torch.randn(2, 1, 8, 8), torch.tensor([[1, 1, 2], [0, 3, 1]]))
    module = Everything()
    forward, backward = capture_pair(module, args)
    assert forward.kind is GraphKind.FORWARD
    assert forward.non_core_ops == {"aten.bernoulli.p": 2, "aten.copy_.default": 3}
    assert backward.non_core_ops == {}
    assert backward.ops()["aten.embedding_dense_backward.default"] == 1
    graph = capture_joint(module, args)
    torch.manual_seed(1)
    found = run_by_pytorch(graph, module, args, {})
    wide = copy.deepcopy(module).double()
    with float64_run():
        torch.manual_seed(1)
        wide(*widened(args)).backward()
    torch.manual_seed(1)
    module(*args).backward()
    exact, eager = ({name: p.grad for name, p in run.named_parameters()} for run in (wide, module))
    as_accurate(exact, eager, {name: found[OutputRole.GRADIENT, name] for name in eager})
    assert sum(parameter.grad.abs().sum() > 0 for parameter in module.parameters() if parameter.grad is not None) > 6


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_soft_margin_loss_keeps_small_gradients(reduction: str) -> None:
    """Far beyond the margin the gradient is exp(-margin); torch's own entry gives 0 there."""
    margin = torch.tensor([[30.0, 20.0, 15.0], [1.0, -2.0, 0.5]], requires_grad=True)
    target = torch.tensor([[1.0, 1.0, 1.0], [-1.0, 1.0, 1.0]])

    def gradient(x: torch.Tensor) -> torch.Tensor:
        loss = F.soft_margin_loss(x, target, reduction=reduction)
        return torch.autograd.grad(loss.sum(), x)[0]

    expected = gradient(margin.double().detach().requires_grad_()).float()
    found = traced(gradient, margin)(margin)
    assert (expected[0] > -1e-5).all() and (expected[0] < 0).all()  # noqa: PT018  # one claim
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
