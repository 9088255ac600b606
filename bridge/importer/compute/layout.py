# SPDX-License-Identifier: Apache-2.0
"""Views and layout changes: index computations that fusion folds into the kernel that reads the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import te, tirx
from tvm_ffi.structural import structural_equal

Index = Any


def const(value: Index) -> Any:
    """A size or an index as an int64 expression; an expression as it stands."""
    return tirx.const(value, "int64") if isinstance(value, int) else value


def is_one(size: Any) -> bool:
    return int(size) == 1 if isinstance(size, int | tirx.IntImm) else False


def gather_by(
    x: te.Tensor, shape: Sequence[Any], index: Callable[..., Sequence[Index]], name: str = "view"
) -> te.Tensor:
    """`out[i...] = x[index(i...)]` with shape `shape`."""
    return te.compute(tuple(shape), lambda *i: x(*index(*i)), name=name)


def identity(x: te.Tensor) -> te.Tensor:
    """A copy."""
    return te.compute(x.shape, lambda *i: x(*i), name="copy")


def permute(x: te.Tensor, order: Sequence[int]) -> te.Tensor:
    """`x.permute(order)`."""
    shape = [x.shape[d] for d in order]

    def index(*i: Index) -> list[Index]:
        source: list[Index] = [None] * len(order)
        for position, dim in enumerate(order):
            source[dim] = i[position]
        return source

    return gather_by(x, shape, index, "permute")


def nothing(shape: Sequence[Any], dtype: str) -> te.Tensor:
    """A tensor without elements."""
    return te.compute(tuple(shape), lambda *i: tirx.const(0, dtype), name="empty")


def element_count(shape: Sequence[Any]) -> Index:
    """The number of elements of a tensor of shape `shape`."""
    count: Index = const(1)
    for size in shape:
        count = count * size
    return count


def flat_index(index: Sequence[Index], shape: Sequence[Any]) -> Index:
    """Row-major position of `index` in a tensor of shape `shape`."""
    position: Index = const(0)
    for i, size in zip(index, shape, strict=True):
        position = position * size + i
    return position


def unflatten(position: Index, shape: Sequence[Any]) -> list[Index]:
    """The index at row-major `position` of a tensor of shape `shape`."""
    index: list[Index] = []
    for size in reversed(shape):
        if is_one(size):
            index.append(const(0))
            continue
        index.append(tirx.floormod(position, size))
        position = tirx.floordiv(position, size)
    return index[::-1]


def reshape(x: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """The same elements in row-major order under another shape.

    Dims are matched in groups with equal products from the left, so that a dim that stays has no division in its index.
    """
    groups = _groups(list(x.shape), list(shape))

    def index(*i: Index) -> list[Index]:
        source: list[Index] = []
        for old, new in groups:
            old_shape, new_shape = [x.shape[d] for d in old], [shape[d] for d in new]
            if len(old) == 1 and len(new) == 1:
                source.append(i[new[0]])
            else:
                source.extend(unflatten(flat_index([i[d] for d in new], new_shape), old_shape))
        return source

    return gather_by(x, shape, index, "reshape")


def _groups(old: list[Any], new: list[Any]) -> list[tuple[list[int], list[int]]]:
    """Splits both shapes into the finest runs of dims with provably equal products."""
    from tvm import sym

    analyzer = sym.Analyzer()

    def equal(a: Any, b: Any) -> bool:
        if isinstance(a, int | tirx.IntImm) and isinstance(b, int | tirx.IntImm):
            return int(a) == int(b)
        return bool(analyzer.can_prove_equal(a, b))

    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        run_old, run_new = [], []
        product_old: Any = const(1)
        product_new: Any = const(1)
        if i < len(old):
            run_old.append(i)
            product_old = old[i]
            i += 1
        if j < len(new):
            run_new.append(j)
            product_new = new[j]
            j += 1
        while not equal(product_old, product_new):
            grow_old = _smaller(product_old, product_new)
            if (grow_old and i < len(old)) or j >= len(new):
                if i >= len(old):
                    break
                run_old.append(i)
                product_old = product_old * old[i]
                i += 1
            else:
                run_new.append(j)
                product_new = product_new * new[j]
                j += 1
        groups.append((run_old, run_new))
    return groups


def _smaller(a: Any, b: Any) -> bool:
    """Which product to extend first: numbers decide; where symbols are in play, the one that is a plain number."""
    a_number, b_number = isinstance(a, int | tirx.IntImm), isinstance(b, int | tirx.IntImm)
    if a_number and b_number:
        return int(a) < int(b)
    return a_number


def broadcast_index(index: Sequence[Index], shape: Sequence[Any], onto: Sequence[Any] = ()) -> list[Index]:
    """The index into a tensor of `shape` that broadcasts to the (longer) output index: dims of size one read 0.

    `onto`: the shape of the output, where it is known: a dim that both have is never broadcast.
    """
    lead = len(index) - len(shape)

    def at(d: int, size: Any) -> Index:
        if is_one(size):
            return const(0)
        if may_be_one(size) and not (onto and structural_equal(size, onto[lead + d])):
            return tirx.min(index[lead + d], size - 1)
        return index[lead + d]

    return [at(d, size) for d, size in enumerate(shape)]


def may_be_one(size: Any) -> bool:
    """Whether a symbolic size may be one without being known as one: `s0 // 2`, where the guards say that it is.

    A symbol is not (PyTorch makes a graph of its own for one), and a sum or product of symbols that a guard holds to
    one is a number already.
    """
    found = False

    def visit(_: Any) -> None:
        nonlocal found
        found = True

    if not isinstance(size, int | tirx.IntImm | tirx.Var):
        tvm_ffi.structural_walk(size, ((tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max), visit))
    return found


def expand(x: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """`x.expand(shape)`; `shape` has no -1."""
    return gather_by(x, shape, lambda *i: broadcast_index(i, x.shape, shape), "expand")


def slice_dim(x: te.Tensor, dim: int, start: Any, step: Any, length: Any) -> te.Tensor:
    """`x[..., start : : step]` along `dim`, `length` elements; `start` is in range already."""
    shape = [length if d == dim else size for d, size in enumerate(x.shape)]
    return gather_by(x, shape, lambda *i: [i[d] * step + start if d == dim else i[d] for d in range(len(i))], "slice")


def select(x: te.Tensor, dim: int, position: Any) -> te.Tensor:
    """`x.select(dim, position)`."""
    shape = [size for d, size in enumerate(x.shape) if d != dim]
    return gather_by(x, shape, lambda *i: [*i[:dim], position, *i[dim:]], "select")


def squeeze(x: te.Tensor, dims: Sequence[int]) -> te.Tensor:
    """Drops `dims`, each of size one."""
    kept = [d for d in range(len(x.shape)) if d not in dims]

    def index(*i: Index) -> list[Index]:
        source: list[Index] = [const(0)] * len(x.shape)
        for position, dim in enumerate(kept):
            source[dim] = i[position]
        return source

    return gather_by(x, [x.shape[d] for d in kept], index, "squeeze")


def unsqueeze(x: te.Tensor, dim: int) -> te.Tensor:
    """Adds a dim of size one at `dim`."""
    shape = [*x.shape[:dim], const(1), *x.shape[dim:]]
    return gather_by(x, shape, lambda *i: [*i[:dim], *i[dim + 1 :]], "unsqueeze")


def as_strided(x: te.Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any) -> te.Tensor:
    """A strided read of the memory of `x`, which is row-major."""

    def index(*i: Index) -> list[Index]:
        position: Index = offset
        for k, step in zip(i, stride, strict=True):
            position = position + k * step
        return unflatten(position, x.shape)

    return gather_by(x, size, index, "as_strided")


def diagonal(x: te.Tensor, offset: int, dim1: int, dim2: int, length: Any) -> te.Tensor:
    """`x.diagonal(offset, dim1, dim2)`: the diagonal becomes the last dim."""
    kept = [d for d in range(len(x.shape)) if d not in (dim1, dim2)]
    first, second = (0, offset) if offset >= 0 else (-offset, 0)

    def index(*i: Index) -> list[Index]:
        source: list[Index] = [None] * len(x.shape)
        for position, dim in enumerate(kept):
            source[dim] = i[position]
        source[dim1], source[dim2] = i[-1] + first, i[-1] + second
        return source

    return gather_by(x, [*(x.shape[d] for d in kept), length], index, "diagonal")


def unfold(x: te.Tensor, dim: int, count: Any, size: int, step: int) -> te.Tensor:
    """`x.unfold(dim, size, step)`: `count` windows along `dim`, the place in the window becomes the last dim."""
    shape = [*(count if d == dim else s for d, s in enumerate(x.shape)), const(size)]
    return gather_by(
        x, shape, lambda *i: [i[d] * step + i[-1] if d == dim else i[d] for d in range(len(x.shape))], "unfold"
    )


def flip(x: te.Tensor, dims: Sequence[int]) -> te.Tensor:
    """`x.flip(dims)`."""
    return gather_by(
        x, x.shape, lambda *i: [x.shape[d] - 1 - i[d] if d in dims else i[d] for d in range(len(i))], "flip"
    )


def concatenate(tensors: Sequence[te.Tensor], dim: int, dtype: str, total: Any) -> te.Tensor:
    """`torch.cat(tensors, dim)` of at least one tensor, values cast to `dtype`; `total` is the size along `dim`."""
    first = tensors[0]
    shape = [total if d == dim else s for d, s in enumerate(first.shape)]

    def read(*i: Index) -> Any:
        starts: list[Any] = []
        start: Any = const(0)
        for t in tensors:
            starts.append(start)
            start = start + t.shape[dim]

        def at(t: te.Tensor, start: Any) -> Any:
            return t(*[k - start if d == dim else k for d, k in enumerate(i)]).astype(dtype)

        value = at(tensors[-1], starts[-1])
        for t, begin, end in zip(reversed(tensors[:-1]), reversed(starts[:-1]), reversed(starts[1:]), strict=True):
            value = tirx.if_then_else(i[dim] < end, at(t, begin), value)
        return value

    return te.compute(tuple(shape), read, name="concatenate")
