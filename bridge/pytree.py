# SPDX-License-Identifier: Apache-2.0
"""Nested tuples, lists, dicts and registered containers, as AOTAutograd flattens them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from . import torch_api


def _pytree() -> Any:
    return torch_api.private("pytree")


def tree_map(function: Callable[[Any], Any], value: Any) -> Any:
    """`value` with `function` applied to every leaf of its nested tuples, lists, dicts and registered containers."""
    return _pytree().tree_map(function, value)


def tree_leaves(value: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a nested value, in AOTAutograd's flat order; what `is_leaf` holds for is not looked into."""
    leaves: list[Any] = _pytree().tree_leaves(value, is_leaf=is_leaf)
    return leaves


def tree_flatten(value: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """The leaves of a nested value and the TreeSpec that `tree_unflatten` takes."""
    leaves, spec = _pytree().tree_flatten(value, is_leaf=is_leaf)
    return leaves, spec


def tree_unflatten(leaves: Iterable[Any], spec: Any) -> Any:
    """The nested value with these leaves."""
    return _pytree().tree_unflatten(list(leaves), spec)


def tree_paths(value: Any) -> list[tuple[str, Any]]:
    """The leaves of a nested value with the access path of each, as `[0]['key']`, in AOTAutograd's flat order."""
    pytree = _pytree()
    return [(pytree.keystr(path), leaf) for path, leaf in pytree.tree_flatten_with_path(value)[0]]


def spec_paths(spec: Any) -> list[str]:
    """The access paths of the leaves of a TreeSpec, in flat order."""
    return [path for path, _ in tree_paths(_pytree().tree_unflatten([0] * spec.num_leaves, spec))]
