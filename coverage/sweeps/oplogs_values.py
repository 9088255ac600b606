# SPDX-License-Identifier: Apache-2.0
"""Inputs for a recorded call: sizes scaled down to what this machine checks soon, and random values that make sense.

Note [Scaling a recorded call]
A call of more than ELEMENTS elements is made smaller by its *sizes*: the largest size of its largest tensor is
replaced by a smaller one, everywhere in the call where the same number stands for the same thing: in every tensor's
shape, and in every list of sizes among the arguments; where that is not enough, also among plain numbers
(group_norm's C), and in multiples of it (the flat 8192 of a view of [64, 128]). Each step is taken only if the op
accepts the smaller call when it is traced without data; a size that cannot shrink (a convolution's channels bound to
its groups) is left alone. Backward ops accept without data what they refuse with it: `really` runs each step. Strides
are rebuilt in the recorded order. The record says what was replaced. A call that stays larger than HARD_LIMIT is
refused with its size.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from relaxgrad.bridge import torch_api

ELEMENTS = 1 << 16  # elements of all tensors of a call together, from which it is scaled down
HARD_LIMIT = 1 << 26
WORK = 1 << 26  # multiplications of a matrix product or convolution, from which it is scaled down as well
SMALL = 3  # no size is made smaller than this


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of a recorded call, without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    stride: tuple[int, ...] | None = None  # None: contiguous

    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Fitted:
    """A call of a size that can be checked here."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    changes: dict[str, int] = field(default_factory=dict)  # recorded size -> size used


def _map(value: Any, function: Callable[[Any], Any]) -> Any:
    """`function` on every TensorSpec and every list of ints in nested containers."""
    if isinstance(value, TensorSpec) or (isinstance(value, list) and value and all(type(v) is int for v in value)):
        return function(value)
    if isinstance(value, tuple | list):
        return type(value)(_map(item, function) for item in value)
    if isinstance(value, dict):
        return {key: _map(item, function) for key, item in value.items()}
    return value


def in_float32(value: Any) -> Any:
    """The call with half precision replaced by float32, among its dtype arguments as well."""
    halves = (torch.float16, torch.bfloat16)
    if isinstance(value, TensorSpec):
        return TensorSpec(value.shape, in_float32(value.dtype), value.stride)
    if isinstance(value, tuple | list):
        return type(value)(in_float32(item) for item in value)
    if isinstance(value, dict):
        return {key: in_float32(item) for key, item in value.items()}
    if value is torch.complex32:
        return torch.complex64
    return torch.float32 if value in halves else value


def specs_in(value: Any) -> list[TensorSpec]:
    """Every TensorSpec in nested containers, in order."""
    found: list[TensorSpec] = []
    _map(value, lambda v: found.append(v) if isinstance(v, TensorSpec) else None)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Scaling


def fit(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], really: bool = False) -> Fitted:
    """The call scaled down by Note [Scaling a recorded call]. Raises ValueError where it stays too large."""
    original = (args, kwargs)
    if not _too_large(op, original):
        return Fitted(args, kwargs)
    with torch_api.quiet():
        return _scaled(op, original, really)


def _scaled(op: Any, original: Any, really: bool) -> Fitted:
    accepted = _accepts(op, original, False)
    changes: dict[int, int] = {}
    call, frozen = original, set[int]()
    while _too_large(op, call):
        size = _largest_size(call, frozen)
        if size is None:
            break
        for replacement in _smaller(size):
            ways = itertools.product((False, True), repeat=2)
            candidates = [_with_size(call, size, replacement, plain, multiples) for plain, multiples in ways]
            taken = next((c for c in candidates if not accepted or _accepts(op, c, really)), None)
            if taken is not None:
                call, changes = taken, _noted(changes, size, replacement)
                frozen.add(replacement)
                break
        else:
            frozen.add(size)
    if sum(s.numel() for s in specs_in(call)) > HARD_LIMIT:
        raise ValueError(f"too large for this machine: {sum(s.numel() for s in specs_in(call)):,} elements")
    return Fitted(call[0], call[1], {str(old): new for old, new in changes.items()})


def _noted(changes: dict[int, int], size: int, new: int) -> dict[int, int]:
    """`changes` with one more; a size that was itself a replacement keeps its recorded origin."""
    origin = next((old for old, now in changes.items() if now == size), size)
    return {**changes, origin: new}


def _too_large(op: Any, call: Any) -> bool:
    specs = specs_in(call)
    elements = sum(s.numel() for s in specs)
    listed = [math.prod(v) for v in _int_lists(call) if all(n > 0 for n in v)]
    if max([elements, *listed]) > ELEMENTS:
        return True
    name = str(op)
    if "convolution" in name:  # output elements times weight elements of one output channel
        weight = specs[2] if "backward" in name else specs[1]
        out = specs[0].numel()
        return out * math.prod(weight.shape[1:]) > WORK
    return name.startswith(("aten.mm", "aten.addmm", "aten.bmm")) and elements * max(specs[-1].shape) > WORK


def _int_lists(value: Any) -> list[list[int]]:
    found: list[list[int]] = []
    _map(value, lambda v: found.append(v) if isinstance(v, list) else None)
    return found


def _largest_size(call: Any, frozen: set[int]) -> int | None:
    for spec in sorted(specs_in(call), key=lambda s: -s.numel()):
        sizes = [n for n in spec.shape if n > SMALL and n not in frozen]
        if sizes:
            return max(sizes)
    sizes = [n for v in _int_lists(call) for n in v if n > 64 and n not in frozen]
    return max(sizes, default=None)


def _smaller(size: int) -> list[int]:
    """Replacements to try, smallest first; those that keep the size's factors of two leave groups and strides valid."""
    candidates = [size // 16, size // 8, size // 4, size // 2]
    if size % 2 and size > 8:
        candidates += [size // 16 | 1, size // 4 | 1]
    return sorted({n for n in candidates if n >= SMALL})


def _with_size(call: Any, size: int, new: int, plain: bool, multiples: bool) -> Any:
    """`call` with `size` replaced by `new` in shapes and lists; `plain`: among plain numbers too."""

    def replace(number: int) -> int:
        if number == size:
            return new
        return number // size * new if multiples and number > size and number % size == 0 else number

    def change(value: Any) -> Any:
        if isinstance(value, list):
            return [replace(n) for n in value]
        shape = tuple(replace(n) for n in value.shape)
        return TensorSpec(shape, value.dtype, _restrided(value, shape))

    args, kwargs = _map(call, change)
    if plain:
        args = tuple(replace(a) if type(a) is int else a for a in args)
    return args, kwargs


def _restrided(spec: TensorSpec, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides in the recorded order for another shape, packed; a stride of 0 stays."""
    if spec.stride is None or shape == spec.shape:
        return spec.stride
    strides, step = list(spec.stride), 1
    for dim in sorted(range(len(shape)), key=lambda d: (spec.stride[d], spec.shape[d])):  # type: ignore[index]  # not None
        if strides[dim] != 0:
            strides[dim] = step
            step *= shape[dim]
    return tuple(strides)


def _accepts(op: Any, call: Any, really: bool) -> bool:
    """Whether the op takes the call, told without data, or by running it where it is small enough for that."""
    try:
        forward = _FORWARD.get(op)
        if forward is not None and tuple(forward(*call[0]).shape) != call[0][0].shape:
            return False
        if really and sum(s.numel() for s in specs_in(call)) < HARD_LIMIT // 4:
            args, kwargs = build(op, *call)
            op(*args, **kwargs)
            return True
        with torch_api.symbolic_fake_mode():
            args, kwargs = _map(call, lambda v: _allocate(v) if isinstance(v, TensorSpec) else v)
            op(*args, **kwargs)
    except torch_api.data_dependent_errors():
        return True
    except Exception:
        return False
    return True


def _meta(shape: Sequence[int]) -> Tensor:
    return torch.empty(tuple(shape), device="meta")


def _convolved(gradient: TensorSpec, x: TensorSpec, weight: TensorSpec, bias_sizes: Any, *rest: Any) -> Tensor:
    *arguments, _ = rest  # stride, padding, dilation, transposed, output padding, groups; and the output mask
    return torch.ops.aten.convolution.default(_meta(x.shape), _meta(weight.shape), None, *arguments)


#: Backward ops that do not ask, without data, whether the gradient has the shape of what it is the gradient of: the
#: forward, from the backward's own arguments.
_FORWARD: dict[Any, Callable[..., Tensor]] = {
    torch.ops.aten.unfold_backward.default: lambda g, sizes, dim, size, step: _meta(sizes).unfold(dim, size, step),
    torch.ops.aten.slice_backward.default: lambda g, sizes, *rest: torch.ops.aten.slice.Tensor(_meta(sizes), *rest),
    torch.ops.aten.convolution_backward.default: _convolved,
}


def _allocate(spec: TensorSpec) -> Tensor:
    if spec.stride is None:
        return torch.zeros(spec.shape, dtype=spec.dtype)
    span = 1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.stride, strict=True)) if spec.numel() else 0
    return torch.zeros(span, dtype=spec.dtype).as_strided(spec.shape, spec.stride)


# ---------------------------------------------------------------------------------------------------------------------
# Values


def build(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with random tensors from torch's generator.

    Floating point is normal(0, 1), positive where the op needs it (variances, logarithms, divisors); integers are
    indices in the range that the op reads, or below 8; bool is a coin. Where eager has no half precision on this CPU
    the caller sees the op raise.
    """
    name = op._schema.name.removeprefix("aten::").rstrip("_")
    positive = _POSITIVE.get(name, ())
    built = []
    for position, value in enumerate(args):
        limits = _limits(name, position, args)
        built.append(_values(value, limits, position in positive))
    fix = _FIXES.get(name)
    if fix is not None:
        fix(built)
    return tuple(built), {key: _values(value, None, False) for key, value in kwargs.items()}


def _values(value: Any, limits: Iterator[int] | int | None, positive: bool) -> Any:
    if isinstance(value, TensorSpec):
        return _random(value, limits if isinstance(limits, int) else None, positive)
    if isinstance(value, list | tuple) and any(isinstance(v, TensorSpec) for v in value):
        sizes = limits if limits is not None and not isinstance(limits, int) else iter([limits] * len(value))
        return [_values(v, next(sizes, None), positive) for v in value]
    return value


def _random(spec: TensorSpec, limit: int | None, positive: bool) -> Tensor:
    tensor = _allocate(spec)
    size = spec.shape
    if spec.dtype is torch.bool:
        values = torch.rand(size) < 0.5
    elif spec.dtype.is_floating_point:
        values = torch.rand(size) + 0.5 if positive else torch.randn(size)
    elif spec.dtype.is_complex:
        values = torch.randn(size, dtype=torch.complex64)
    else:
        values = torch.randint(0, max(limit or 8, 1), size)
    if spec.stride is not None and any(n > 1 and s == 0 for n, s in zip(size, spec.stride, strict=True)):
        # expanded: one value for all elements that share memory
        for dim, step in enumerate(spec.stride):
            if step == 0 and values.shape[dim] > 1:
                values = values.narrow(dim, 0, 1)
        base = _allocate(TensorSpec(tuple(values.shape), spec.dtype))
        return base.copy_(values).expand(size)
    with contextlib.suppress(RuntimeError):  # memory that overlaps itself keeps its zeros
        tensor.copy_(values)
    return tensor


#: Arguments of each op (in-place forms as well) that must be positive.
_POSITIVE: dict[str, tuple[int, ...]] = {
    "sqrt": (0,), "rsqrt": (0,), "log": (0,), "log2": (0,), "log10": (0,), "reciprocal": (0,), "log1p": (0,),
    "div": (1,), "floor_divide": (1,), "fmod": (1,), "remainder": (1,), "addcdiv": (2,),
    "native_batch_norm": (4,), "_native_batch_norm_legit": (4,), "_native_batch_norm_legit_no_training": (4,),
    "native_batch_norm_backward": (4, 6), "native_layer_norm_backward": (4,), "native_group_norm_backward": (3,),
    "pow": (0,),
}  # fmt: skip


_ALONG_A_DIM = frozenset(
    ("gather", "index_select", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill")
)


def _limits(name: str, position: int, args: tuple[Any, ...]) -> Any:
    """What the integers of an argument are indices into: a bound, one for each tensor of a list, or None."""

    def shape(number: int) -> tuple[int, ...]:
        return args[number].shape if isinstance(args[number], TensorSpec) else ()

    if name in ("embedding", "_embedding_bag", "_embedding_bag_forward_only") and position == 1:
        return shape(0)[0]
    if name == "embedding_dense_backward" and position == 1:
        return args[2]
    if name == "_embedding_bag_per_sample_weights_backward" and position in (2, 4):
        return shape(1)[0] if position == 2 else shape(0)[0]
    if name in _ALONG_A_DIM:
        return (shape(0)[args[1]] if shape(0) else 1) if position == 2 else None
    if name in ("index", "index_put", "_index_put_impl", "_unsafe_index", "_unsafe_index_put") and position == 1:
        return iter(_index_limits(shape(0), args[1]))
    if name in ("nll_loss_forward", "nll_loss2d_forward") and position == 1:
        return shape(0)[1] if len(shape(0)) > 1 else shape(0)[0]
    if name in ("nll_loss_backward", "nll_loss2d_backward") and position == 2:
        return shape(1)[1] if len(shape(1)) > 1 else shape(1)[0]
    if name in ("take", "put") and position == 1:
        return math.prod(shape(0))
    return None


def _index_limits(shape: tuple[int, ...], indices: list[Any]) -> list[int | None]:
    limits: list[int | None] = []
    dim = 0
    for index in indices:
        mask = isinstance(index, TensorSpec) and index.dtype in (torch.bool, torch.uint8)
        limits.append(None if index is None or mask else shape[dim])
        dim += len(index.shape) if mask else 1
    return limits


def _bags(position: int, indices: int) -> Callable[[list[Any]], None]:
    """Offsets of bags: they start at 0, do not fall, and stay below the number of indices."""

    def fix(args: list[Any]) -> None:
        count = args[indices].numel()
        offsets = torch.randint(0, max(count, 1), args[position].shape).sort().values
        if offsets.numel():
            offsets[0] = 0
        args[position] = offsets.to(args[position].dtype)

    return fix


def _pooled(args: list[Any]) -> None:
    """The indices of the pooling's own forward: each window's lie inside it, which random ones would not."""
    args[7] = torch.ops.aten.max_pool2d_with_indices.default(*args[1:7])[1]


_FIXES: dict[str, Callable[[list[Any]], None]] = {
    "max_pool2d_with_indices_backward": _pooled,
    "_embedding_bag": _bags(2, 1),
    "_embedding_bag_forward_only": _bags(2, 1),
    "_embedding_bag_per_sample_weights_backward": _bags(3, 2),
}
