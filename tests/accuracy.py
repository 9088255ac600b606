# SPDX-License-Identifier: Apache-2.0
"""The float64 rule as an assertion: what a result must be held to where eager's own bits are not asked for."""

from __future__ import annotations

from typing import Any

from torch.utils import _pytree as pytree

from relaxgrad.coverage.harness.numbers import compare_all, same


def as_accurate(reference: Any, eager: Any, result: Any) -> None:
    """Fails unless every tensor of `result` is eager's to the bit, or as near to `reference`, which is in float64.

    All three are a tensor, or containers of tensors of one structure, which are one set of the rule.
    """
    sides = [
        {pytree.keystr(path): leaf.detach() for path, leaf in pytree.tree_flatten_with_path(side)[0]}
        for side in (reference, eager, result)
    ]
    assert sides[0].keys() == sides[1].keys() == sides[2].keys()
    assert sides[1], "nothing to compare"
    moved = [name for name, tensor in sides[1].items() if not same(tensor, sides[2][name])]
    failed = [c for c in compare_all(*({name: side[name] for name in moved} for side in sides)) if not c.passed]
    assert not failed, "\n".join(map(str, failed))


def widened(value: Any) -> Any:
    """A copy of tensors in containers, those of floats in float64."""
    return pytree.tree_map(lambda t: t.detach().double() if t.is_floating_point() else t.detach().clone(), value)
