# SPDX-License-Identifier: Apache-2.0
"""Many small tensors that a forward graph saves for its backward, handed over as few.

Note [Coalesced activations]
Each saved tensor passes from the machine to PyTorch, through autograd's saved tensors and back into the machine: 7 us
in all. The cells of a recurrent layer save hundreds, of a few kilobytes each. The forward graph copies such tensors of
one shape into a pack, and the backward graph takes it apart again (`unbind`, which the runtime makes views of). A pack
is made as soon as its parts are there, so that only those of one pack are held twice.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from .. import torch_api
from ..device import host

aten = torch.ops.aten

#: Views that are made again in the backward graph: of the memory's layout, not of a part of it.
_VIEWS = {
    aten.permute.default, aten.view.default, aten.alias.default, aten.unsqueeze.default, aten.squeeze.dim,
    aten.squeeze.dims, aten.t.default, aten.transpose.int, aten.detach.default,
}  # fmt: skip
#: What TVM carries as tensors.
_DTYPES = {
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.bool,
}  # fmt: skip
#: Bytes of a tensor up to which a copy of it costs less than handing it over.
SMALL = 1 << 14
#: Parts of a pack.
FEWEST, MOST = 8, 64


@dataclass
class _Part:
    """A tensor that goes into a pack, and the saved values that are it or views of it."""

    node: torch.fx.Node
    saved: list[tuple[torch.fx.Node, list[torch.fx.Node]]] = field(default_factory=list)  # with the views on the way


def coalesce_saved(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, outputs: int) -> None:
    """Packs the small tensors that `forward` saves for `backward`, in place: see Note [Coalesced activations].

    `outputs`: how many of the forward graph's outputs are no saved tensors; they come first.
    """
    returned = next(iter(forward.graph.find_nodes(op="output")))
    values = list(returned.args[0])
    placeholders = {node.name: node for node in backward.graph.find_nodes(op="placeholder")}
    packs = _packs(forward.graph, values[outputs:], set(values[:outputs]), placeholders)
    if not packs:
        return
    replaced: dict[torch.fx.Node, torch.fx.Node | None] = {}
    for parts in packs:
        pack = _packed(forward.graph, [part.node for part in parts])
        saved = [value for part in parts for value, _ in part.saved]
        first = min(saved, key=values.index)
        replaced |= dict.fromkeys(saved) | {first: pack}
        _take_apart(backward.graph, pack, parts, placeholders, placeholders[first.name])
    kept = [n for n, value in enumerate(values) if n < outputs or replaced.get(value, value) is not None]
    returned.args = (tuple(values[n] if n < outputs else replaced.get(values[n], values[n]) for n in kept),)
    if len(descs := list(returned.meta.get("desc") or ())) == len(values):
        returned.meta["desc"] = [descs[n] for n in kept]
    for module in (forward, backward):
        module.graph.lint()
        module.recompile()


def _packs(
    graph: torch.fx.Graph,
    values: Sequence[Any],
    others: set[Any],
    placeholders: Mapping[str, torch.fx.Node],
) -> list[Sequence[_Part]]:
    """The parts of each pack, in the graph's order. `others`: outputs that are not saved."""
    found: dict[torch.fx.Node, _Part] = {}
    for value in values:
        if not isinstance(value, torch.fx.Node) or value in others or value.meta.get("saved_tensor_with_no_vc_check"):
            continue
        root, way = _root(value)
        if not _is_small(root):
            continue
        if value.name not in placeholders:
            return []  # not the convention that we know
        if _is_returned(placeholders[value.name]):  # a gradient that the forward computed: it would be part of a pack
            continue
        found.setdefault(root, _Part(root)).saved.append((value, way))
    kinds: dict[Any, list[_Part]] = defaultdict(list)
    for node in graph.nodes:
        if node in found:
            fake = node.meta["val"]
            kinds[tuple(fake.shape), fake.dtype].append(found[node])
    chunks = [parts[start : start + MOST] for parts in kinds.values() for start in range(0, len(parts), MOST)]
    return [chunk for chunk in chunks if len(chunk) >= FEWEST]


def _root(node: torch.fx.Node) -> tuple[torch.fx.Node, list[torch.fx.Node]]:
    """What a value is a view of, and the views on the way from there."""
    way: list[torch.fx.Node] = []
    while node.op == "call_function" and node.target in _VIEWS and node.all_input_nodes == [node.args[0]]:
        way.insert(0, node)
        node = node.all_input_nodes[0]
    return node, way


def _is_returned(node: torch.fx.Node) -> bool:
    """Whether the backward graph returns an input, or a view of it, as it is."""
    return any(user.op == "output" or (user.target in _VIEWS and _is_returned(user)) for user in node.users)


def _is_small(node: torch.fx.Node) -> bool:
    """Whether a value is worth a copy: small, of known size, row-major and in memory of its own."""
    value = node.meta.get("val")
    if (
        not isinstance(value, torch.Tensor)
        or value.dtype not in _DTYPES
        or value.layout != torch.strided
        or torch_api.has_symbols(value)
    ):
        return False
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or any(r.alias_info is not None for r in schema.returns):
        return False
    size = value.numel() * value.element_size()
    return bool(value.dim() and 0 < size <= SMALL and value.is_contiguous() and value.device.type == host().name)


def _packed(graph: torch.fx.Graph, parts: Sequence[torch.fx.Node]) -> torch.fx.Node:
    """The node of the pack, (parts, *shape), right after the last part."""
    shape = list(parts[0].meta["val"].shape)
    with graph.inserting_after(parts[-1]):
        joined = graph.call_function(aten.cat.default, (list(parts), 0))
    with graph.inserting_after(joined):
        pack = graph.call_function(aten.view.default, (joined, [len(parts), *shape]))
    joined.meta["val"] = torch.cat([part.meta["val"] for part in parts])
    pack.meta["val"] = joined.meta["val"].view(pack.args[1])
    return pack


def _take_apart(
    graph: torch.fx.Graph,
    pack: torch.fx.Node,
    parts: Sequence[_Part],
    placeholders: Mapping[str, torch.fx.Node],
    place: torch.fx.Node,
) -> None:
    """Has the backward graph read the parts from the pack, which enters it in the place of one of them."""
    with graph.inserting_before(place):
        whole = graph.placeholder(pack.name)
    whole.meta["val"] = pack.meta["val"]
    with graph.inserting_after(list(graph.find_nodes(op="placeholder"))[-1]):
        opened = graph.call_function(aten.unbind.int, (whole,))
    opened.meta["val"] = list(whole.meta["val"].unbind())
    after = opened
    for number, part in enumerate(parts):
        with graph.inserting_after(after):
            after = own = graph.call_function(operator.getitem, (opened, number))
        own.meta["val"] = opened.meta["val"][number]
        for value, way in part.saved:
            found = own
            for view in way:
                with graph.inserting_after(after):
                    after = graph.node_copy(view, {view.args[0]: found}.__getitem__)
                after.meta["val"] = view.meta["val"]
                found = after
            placeholders[value.name].replace_all_uses_with(found)
            graph.erase_node(placeholders[value.name])
