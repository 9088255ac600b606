# SPDX-License-Identifier: Apache-2.0
"""Copies of a call's inputs: laid out like the originals, widened, or with one size grown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from relaxgrad.bridge import pytree


def copy_inputs(value: Any, wide: torch.dtype | None) -> Any:
    """`value` with every tensor of its nested containers copied as a leaf that asks for a gradient where it did.

    Sizes, strides, offsets and shared memory stay as they are. With `wide`, floating-point tensors become `wide`,
    complex ones complex128 (complex64 for float32), in dense layout; numbers stay.
    """
    storages: dict[int, tuple[Any, Any]] = {}
    tensors: dict[int, Tensor] = {}

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if id(leaf) not in tensors:
            tensors[id(leaf)] = _copy(leaf, storages, wide)
        return tensors[id(leaf)]

    return pytree.tree_map(copy, value)


def _copy(tensor: Tensor, storages: dict[int, tuple[Any, Any]], wide: torch.dtype | None) -> Tensor:
    source = tensor.detach()
    needs_grad = tensor.requires_grad
    if wide is not None and source.is_floating_point() and source.dtype is not wide:
        return source.to(wide, copy=True).requires_grad_(needs_grad)
    if wide is not None and source.is_complex():
        complex_wide = torch.complex64 if wide is torch.float32 else torch.complex128
        return source.to(complex_wide, copy=True).requires_grad_(needs_grad)
    plain = source.layout is torch.strided and not source.is_nested and not source.is_quantized
    if not plain or source.is_conj() or source.is_neg():
        return source.clone().requires_grad_(needs_grad)
    storage = source.untyped_storage()
    if storage.data_ptr() not in storages or storage.data_ptr() == 0:
        # The original is kept as well: its address stands for it only while it lives, and under a dispatch mode
        # `detach` may have given a temporary.
        storages[storage.data_ptr()] = (storage.clone(), storage)
    new = torch.empty(0, dtype=source.dtype)
    new.set_(storages[storage.data_ptr()][0], source.storage_offset(), source.shape, source.stride())
    return new.requires_grad_(needs_grad)


def grown(args: Any, kwargs: Any, most: int = 3) -> Iterator[tuple[Any, Any]]:
    """The inputs with one size grown by one wherever it occurs, for the `most` commonest sizes above 1.

    What is added repeats the first slice, floating-point values a little nearer to zero: they stay in the domain of the
    op and indices in range, and no two values are equal that were not.
    """
    leaves = [t for t in pytree.tree_leaves((args, kwargs)) if _can_grow(t)]
    sizes = Counter(size for t in leaves for size in t.shape if size > 1)
    for size, _ in sizes.most_common(most):
        steps = torch.arange(size + 1) % size

        def grow(leaf: Any, size: int = size, steps: Tensor = steps) -> Any:
            if not _can_grow(leaf):
                return leaf
            new = leaf.detach()
            for dim, length in enumerate(leaf.shape):
                if length == size:
                    new = new.index_select(dim, steps)
                    if new.is_floating_point():
                        new.select(dim, size).mul_(0.9375)
            return new.clone().requires_grad_(leaf.requires_grad)

        yield pytree.tree_map(grow, (args, kwargs))


def _can_grow(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.layout is torch.strided and not leaf.is_nested
