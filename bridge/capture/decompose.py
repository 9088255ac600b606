# SPDX-License-Identifier: Apache-2.0
"""Decomposition tables by name: `core_aten` (torch's own, changed where training needs it) and `none`.

Note [What the core_aten table changes]
torch's table is made for export, where a graph is run for its values. A training graph is also run for its gradients
and its random numbers, and ends in a compiler that has good kernels for some ops. So:

- removed, wrong in training: what a device names (Device.not_decomposed).
- removed, other random numbers than eager: the entries of random ops (`bernoulli`, `rrelu_with_noise`, ...) draw
  uniform numbers and compare; ATen draws differently from the same seed. Random ops stay random ops.
- removed, better whole: `embedding_dense_backward` (a scatter, where the entry is a masked copy and an accumulating
  index_put).
- removed in graphs with a `scan`: `detach`. torch's entry hands the tensor itself on, so a body that
  saves its own output returns one tensor twice, and torch refuses a body whose outputs share memory.
- wrapped: entries whose results have other strides than eager's (strides.py).
- added: entries of torch's registry for non-core ops that training graphs contain (the gradient of batch norm, ...),
  and our own, the functions at the end of this file.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from .. import torch_api
from ..device import devices
from ..errors import UserError
from .foreach import foreach_decompositions
from .strides import with_eager_strides

aten = torch.ops.aten

Table = dict[Any, Callable[..., Any]]

_REMOVED = (
    aten.embedding_dense_backward,
    aten.rrelu_with_noise,  # random, but carries no tag that says so
    aten.rrelu_with_noise_,
)

_ADDED = (
    aten._native_batch_norm_legit,
    aten.new_empty_strided,
    aten.linalg_vector_norm,
    aten.native_batch_norm,
    aten.batch_norm_backward,
)


def decompositions(name: str = "core_aten", graph: torch.fx.GraphModule | None = None) -> Table:
    """A fresh copy of the table `name`: OpOverload -> decomposition, for a Dynamo graph where one is given.

    Raises UserError for an unknown name.
    """
    if name not in TABLES:
        raise UserError(f"no decomposition table {name!r}; there are {', '.join(sorted(TABLES))}")
    table = dict(TABLES[name]())
    fma = getattr(torch.ops.prims, "fma", None)  # Dynamo registers it the first time it uses it
    if table and fma is not None:
        table[fma.default] = lambda a, b, c: a * b + c
    if graph is not None and _scans(graph):
        table.pop(aten.detach.default, None)
    return table


def _scans(graph: torch.fx.GraphModule) -> bool:
    scan = torch.ops.higher_order.scan
    graphs = [module.graph for module in graph.modules() if isinstance(module, torch.fx.GraphModule)]
    return any(node.target is scan for found in graphs for node in found.nodes)


@functools.cache
def _core_aten() -> Table:
    table = torch_api.core_aten_decompositions()
    table.update(torch_api.get_decompositions(_ADDED))
    removed = {*_REMOVED, *(torch_api.packet(op) for device in devices().values() for op in device.not_decomposed)}
    for op in list(table):
        if getattr(op, "overloadpacket", None) in removed or is_random(op):
            del table[op]
    table.update(foreach_decompositions())
    table.update(_own())
    return with_eager_strides(table)


def _own() -> Table:
    return {
        aten.native_dropout.default: native_dropout,
        aten.var_mean.correction: var_mean,
        aten._native_batch_norm_legit.no_stats: batch_norm_no_stats,
        aten._native_batch_norm_legit_functional.default: batch_norm_functional,
        aten._batch_norm_with_update_functional.default: batch_norm_with_update_functional,
        aten._batch_norm_no_update.default: batch_norm_no_update,
        aten.native_group_norm.default: group_norm,
        aten._embedding_bag.default: embedding_bag,
        aten.diagonal_scatter.default: diagonal_scatter,
        aten.max.default: aten.amax.default,
        aten.min.default: aten.amin.default,
        torch.ops.prims.convert_element_type.default: torch.Tensor.to,
        aten.soft_margin_loss_backward.default: soft_margin_loss_backward,
    }


def _none() -> Table:
    return {}


TABLES: dict[str, Callable[[], Table]] = {"core_aten": _core_aten, "none": _none}


def is_random(op: Any) -> bool:
    """Whether an op draws from PyTorch's generator itself (a composite, as `aten.dropout`, does so through others)."""
    if not isinstance(op, torch_api.OpOverload) or torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    return not op._can_decompose()


def is_core(op: Any) -> bool:
    """Whether a node target is a core ATen op (torch's tag), or needs no kernel (getitem, symbolic arithmetic)."""
    if isinstance(op, torch_api.OpOverload):
        return torch.Tag.core in op.tags
    return not isinstance(op, torch_api.HigherOrderOperator)


def non_core_ops(graph: torch.fx.GraphModule) -> Counter[str]:
    """Calls of ops outside core ATen, by overload name."""
    return Counter(str(n.target) for n in graph.graph.nodes if n.op == "call_function" and not is_core(n.target))


# ---------------------------------------------------------------------------------------------------------------------
# Our own decompositions


def native_dropout(input: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """`aten.native_dropout` as one random op and arithmetic that a compiler can fuse; the mask is bit-equal to eager's.

    Returns (input * mask / (1 - p), bool mask), as ATen/native/Dropout.cpp does.

    ATen fills the mask in the order of the input's *memory*, `bernoulli` fills a contiguous tensor. A compiled graph
    keeps no strides for its intermediates, so the order is made explicit: the mask is drawn with its dimensions in
    memory order and permuted back.
    """
    if train is not None and not train:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    order = _memory_order(input)
    sizes = [input.shape[d] for d in order]
    mask = aten.bernoulli.p(aten.empty.memory_format(sizes, dtype=torch.bool, device=input.device), 1 - p)
    if order != list(range(input.dim())):
        mask = mask.permute([order.index(d) for d in range(input.dim())])
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    # The scale is rounded to the input's type before it meets the input, which shows in half precision.
    return input * (mask.to(input.dtype) * scale), mask


def _memory_order(x: torch.Tensor) -> list[int]:
    """The dimensions of `torch.empty_like(x)` from the outermost in memory to the innermost."""
    if x.is_contiguous():
        return list(range(x.dim()))
    strides = torch.empty_like(x).stride()
    # A dimension of size 1 may carry any stride: wherever the sort puts it, it moves no element.
    return sorted(range(x.dim()), key=lambda d: -torch_api.hint_of(strides[d]))


def var_mean(
    x: torch.Tensor, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """`aten.var_mean.correction`: (variance, mean) with one mean computed, in float32 for half precision as ATen does.

    The divisor is max(0, N - correction) for N elements, correction 1 when it is None.
    """
    dims = sorted({d % x.dim() for d in dim}) if dim and x.dim() else list(range(x.dim()))
    work = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    mean = aten.mean.dim(work, dims, True)
    centred = work - mean
    square = centred * centred.conj() if x.is_complex() else centred * centred
    count: Any = math.prod(x.shape[d] for d in dims)
    taken = 1 if correction is None else correction
    divisor = torch.sym_max(count - taken, 0) if taken else count
    total = aten.sum.dim_IntList(square.real if x.is_complex() else square, dims, keepdim)
    variance = total / divisor
    mean = mean if keepdim else aten.squeeze.dims(mean, dims)
    if work is not x:
        return variance.to(x.dtype), mean.to(x.dtype)
    return variance, mean


def _batch_norm_train(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, saved: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(output, mean and 1/sqrt(variance + eps) by channel in `saved`, and mean and biased variance unrounded)."""
    dims = [d for d in range(x.dim()) if d != 1]
    shape = [-1 if d == 1 else 1 for d in range(x.dim())]
    work = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    variance, mean = torch.var_mean(work, dims, correction=0)
    rstd = torch.rsqrt(variance + eps)
    out = (work - mean.view(shape)) * rstd.view(shape)
    if weight is not None:
        out = out * weight.view(shape)
    if bias is not None:
        out = out + bias.view(shape)
    return out.to(x.dtype), mean.to(saved), rstd.to(saved), mean, variance


def _saved_dtype(x: torch.Tensor, *parameters: torch.Tensor | None) -> torch.dtype:
    """The dtype of saved statistics: that of the parameters, where `x` is half and they are float32.

    torch's entries round them to the input's dtype, which eager does not do: under autocast every gradient would be
    computed from a mean of eight bits.
    """
    return next((p.dtype for p in parameters if p is not None), x.dtype)


def batch_norm_no_stats(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[torch.Tensor, ...]:
    """`aten._native_batch_norm_legit.no_stats`: (output, saved mean, saved 1/deviation), always from the batch."""
    return _batch_norm_train(x, weight, bias, eps, _saved_dtype(x, weight, bias))[:3]


def batch_norm_functional(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """`aten._native_batch_norm_legit_functional`: (output, saved mean and 1/deviation, new running mean and variance).

    The running variance takes the unbiased variance of the batch, as in ATen/native/Normalization.cpp.
    """
    if not training:
        found = aten._native_batch_norm_legit_no_training(x, weight, bias, running_mean, running_var, momentum, eps)
        return (*found, running_mean.clone(), running_var.clone())
    saved = _saved_dtype(x, weight, bias, running_mean, running_var)
    out, save_mean, save_rstd, mean, variance = _batch_norm_train(x, weight, bias, eps, saved)
    count: Any = math.prod(x.shape[d] for d in range(x.dim()) if d != 1)
    unbiased = variance * (count / (count - 1))
    new_mean = momentum * mean + (1 - momentum) * running_mean
    new_var = momentum * unbiased + (1 - momentum) * running_var
    return out, save_mean, save_rstd, new_mean.to(running_mean.dtype), new_var.to(running_var.dtype)


def batch_norm_with_update_functional(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    momentum: float,
    eps: float,
) -> Any:
    """The same in training, with the device's reserve after the saved statistics."""
    reserve = _reserve(x)
    if reserve is None:
        return NotImplemented
    found = batch_norm_functional(x, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*found[:3], reserve, *found[3:])


def batch_norm_no_update(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
) -> Any:
    """`aten._batch_norm_no_update`: batch norm by the running statistics, with the device's reserve."""
    reserve = _reserve(x)
    if reserve is None or running_mean is None or running_var is None:
        return NotImplemented
    found = aten._native_batch_norm_legit_no_training(x, weight, bias, running_mean, running_var, momentum, eps)
    return (*found, reserve)


def _reserve(x: torch.Tensor) -> torch.Tensor | None:
    device = devices().get(x.device.type)
    return None if device is None else device.batch_norm_reserve(x)


def group_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    batch: int,
    channels: int,
    positions: int,
    groups: int,
    eps: float,
) -> Any:
    """`aten.native_group_norm` of half input with float32 parameters, the only case that does not stay whole.

    (output, mean and 1/deviation by group in float32 as eager saves them): torch's shape function has them in half.
    """
    if _saved_dtype(x, weight, bias) is x.dtype:
        return NotImplemented
    rows = x.reshape(batch, groups, (channels // groups) * positions).float()
    variance, mean = torch.var_mean(rows, [2], correction=0)
    rstd = torch.rsqrt(variance + eps)
    out = ((rows - mean.unsqueeze(-1)) * rstd.unsqueeze(-1)).reshape(x.shape)
    shape = [-1 if d == 1 else 1 for d in range(x.dim())]
    if weight is not None:
        out = out * weight.view(shape)
    if bias is not None:
        out = out + bias.view(shape)
    return out.to(x.dtype), mean, rstd


def embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """`aten._embedding_bag` of bfloat16 sums, as one of the rows in float32; every other call stays whole.

    The CPU kernel leaves its second output, which the gradient reads, empty for these; torch's shape function says so
    for float32 and float16 alone.
    """
    if weight.dtype is not torch.bfloat16 or mode != 0 or padding_idx >= 0:
        return NotImplemented
    rows = weight.index_select(0, indices).float()
    places = torch.arange(indices.shape[0], dtype=indices.dtype, device=indices.device)
    scale = None if per_sample_weights is None else per_sample_weights.float()
    out, *rest = aten._embedding_bag.default(rows, places, offsets, False, mode, False, scale, include_last_offset, -1)
    return (out.to(weight.dtype), *rest)


def diagonal_scatter(x: torch.Tensor, src: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> torch.Tensor:
    """`aten.diagonal_scatter`: `x` with `x.diagonal(offset, dim1, dim2)` replaced by `src`, as an index_put."""
    dim1, dim2 = dim1 % x.dim(), dim2 % x.dim()
    order = [d for d in range(x.dim()) if d not in (dim1, dim2)] + [dim1, dim2]
    steps = torch.arange(src.shape[-1], device=x.device)
    where = [None] * (x.dim() - 2) + [steps + max(0, -offset), steps + max(0, offset)]
    placed = aten.index_put.default(x.permute(order), where, src)
    return placed.permute([order.index(d) for d in range(x.dim())])


def soft_margin_loss_backward(
    grad_output: torch.Tensor, self: torch.Tensor, target: torch.Tensor, reduction: int
) -> torch.Tensor:
    """`-target * sigmoid(-target * self) * grad_output`, over the number of elements for the mean (reduction 1).

    torch's entry has `sigmoid(target * self) - 1` in its place, which cancels where the margin is large.
    """
    grad = -target * torch.sigmoid(-target * self) * grad_output
    return grad / self.numel() if reduction == 1 else grad
