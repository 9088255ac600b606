# SPDX-License-Identifier: Apache-2.0
"""The higher-order ops that AOTAutograd wraps around plain ones, as plain nodes of the graph.

The partitioner wraps a random op that backward draws again (activation checkpointing with dropout):
`run_and_save_rng_state(op, *args)` in the forward graph returns the generator's state with the result,
`run_with_rng_state(state, op, *args)` in the backward graph draws from that state and puts the generator back.
Functional graphs thread a token through ops that are run for their effect: `with_effects(token, op, *args)`. Here each
becomes plain nodes around the op itself, which is then translated as it is anywhere else. FX order is the order of
execution: see Note [Effectful calls] in translate.py.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from .. import torch_api


class GeneratorState:
    """What `meta["val"]` says of a generator's state: a value that only these functions read."""


def swap_state(state: torch.Tensor) -> torch.Tensor:
    """Makes `state` the state of PyTorch's CPU generator; returns the one that it had."""
    previous = torch.get_rng_state()
    torch.set_rng_state(state)
    return previous


#: The functions of the new nodes.
STATE_FUNCTIONS = frozenset({torch.get_rng_state, torch.set_rng_state, swap_state})


def unwrapped(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """`module`, or where it has such wrappers a copy without them."""
    ops = torch.ops.higher_order
    wrappers = {ops.run_and_save_rng_state: _save, ops.run_with_rng_state: _restore, ops.with_effects: _effect}
    if not any(node.target in wrappers for node in module.graph.nodes):
        return module
    graph = torch.fx.Graph()
    copied: dict[torch.fx.Node, torch.fx.Node] = {}
    output = graph.graph_copy(module.graph, copied)
    end = graph.output(output)
    end.meta = dict(next(n for n in module.graph.nodes if n.op == "output").meta)
    mode = torch_api.fake_mode_of(module)
    for original, node in copied.items():
        node.meta = dict(original.meta)
        if node.target in wrappers:
            wrappers[node.target](graph, node, mode)
    return torch.fx.GraphModule(module, graph)


def _save(graph: torch.fx.Graph, node: torch.fx.Node, mode: Any) -> None:
    op, *args = node.args
    with graph.inserting_before(node):
        state = _new(graph, torch.get_rng_state, (), {}, node, GeneratorState())
        drawn = _new(graph, op, tuple(args), dict(node.kwargs), node, _fake_result(op, args, node.kwargs, mode))
    _replace(graph, node, [state, drawn])


def _effect(graph: torch.fx.Graph, node: torch.fx.Node, _: Any) -> None:
    token, op, *args = node.args
    _, *results = node.meta["val"]
    with graph.inserting_before(node):
        val = results[0] if len(results) == 1 else tuple(results)
        done = _new(graph, op, tuple(args), dict(node.kwargs), node, val)
        parts = [done]
        if len(results) > 1:
            parts = [_new(graph, operator.getitem, (done, i), {}, node, r) for i, r in enumerate(results)]
    _replace(graph, node, [token, *parts])


def _replace(graph: torch.fx.Graph, node: torch.fx.Node, parts: Sequence[Any]) -> None:
    """Puts `parts[i]` in the place of output i of `node`."""
    for user in list(node.users):
        assert user.target is operator.getitem, f"{node.name} is read as a whole by {user.name}"
        user.replace_all_uses_with(parts[user.args[1]])  # type: ignore[index]  # an int
        graph.erase_node(user)
    graph.erase_node(node)


def _restore(graph: torch.fx.Graph, node: torch.fx.Node, mode: Any) -> None:
    state, op, *args = node.args
    if isinstance(state, torch.fx.Node) and state.op == "placeholder":
        state.meta["val"] = GeneratorState()
    with graph.inserting_before(node):
        previous = _new(graph, swap_state, (state,), {}, node, GeneratorState())
        drawn = _new(graph, op, tuple(args), dict(node.kwargs), node, _fake_result(op, args, node.kwargs, mode))
        _new(graph, torch.set_rng_state, (previous,), {}, node, None)
    node.replace_all_uses_with(drawn)
    graph.erase_node(node)


def _new(
    graph: torch.fx.Graph, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], like: torch.fx.Node, val: Any
) -> torch.fx.Node:
    node = graph.call_function(target, args, kwargs)
    node.meta = {**like.meta, "val": val}
    return node


def _fake_result(op: Any, args: list[Any], kwargs: dict[str, Any], mode: Any) -> Any:
    """What the op returns, as FakeTensors: the wrapper's node carries none."""
    fake_args, fake_kwargs = torch.fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
    with mode:
        return op(*fake_args, **fake_kwargs)
