# SPDX-License-Identifier: Apache-2.0
"""A captured graph as text and as JSON."""

from __future__ import annotations

import json
import operator
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.fx

from .. import torch_api
from ..files import write_whole
from ..schemas import CapturedGraph, GraphInput, GraphOutput
from .source import source_of

FORMAT = 1  # version of signature.json and ops.json


def render(graph: CapturedGraph) -> str:
    """The graph as text: signature with roles, one line a node (name, type, call, user's line), op counts,
    ops outside core ATen."""
    parts = [
        f"{graph.kind} graph, decomposition {graph.decompose}: {len(graph.inputs)} inputs, "
        f"{len(graph.outputs)} outputs, {sum(graph.ops().values())} calls",
        _section("inputs", _table(_input_rows(graph.inputs))),
        _section("outputs", _table(_output_rows(graph.outputs))),
        _section("mutated in place", _table(_mutations(graph.module))),
        _section("nodes", _table(_node_rows(graph.module))),
        _section("ops", _table([str(n), op] for op, n in op_counts(graph).items())),
        _section("outside core ATen", _table([str(n), op] for op, n in graph.non_core_ops.most_common())),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def save(graph: CapturedGraph, directory: str | Path) -> Path:
    """Writes graph.txt, signature.json and ops.json into `directory` (made when missing) and returns it.

    Each file is whole or not there: it is written beside its place and renamed.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "graph.txt", render(graph).encode())
    write_whole(folder / "signature.json", (json.dumps(signature_json(graph), indent=2) + "\n").encode())
    write_whole(folder / "ops.json", (json.dumps(ops_json(graph), indent=2) + "\n").encode())
    return folder


def signature_json(graph: CapturedGraph) -> dict[str, Any]:
    """The signature as JSON values."""
    return {
        "format": FORMAT,
        "torch": str(torch.__version__),
        "kind": graph.kind.value,
        "decompose": graph.decompose,
        "inputs": [asdict(item) for item in graph.inputs],
        "outputs": [asdict(item) for item in graph.outputs],
        "mutated_in_place": [name for _, name in _mutations(graph.module)],
    }


def ops_json(graph: CapturedGraph) -> dict[str, Any]:
    """The op counts and the ops outside core ATen as JSON values."""
    return {
        "format": FORMAT,
        "torch": str(torch.__version__),
        "kind": graph.kind.value,
        "decompose": graph.decompose,
        "ops": op_counts(graph),
        "non_core_ops": dict(graph.non_core_ops.most_common()),
    }


def op_counts(graph: CapturedGraph) -> dict[str, int]:
    """Calls by op, most first, without the bookkeeping of taking one output of several."""
    calls = [n.target for n in graph.module.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]
    return dict(sorted(Counter(map(_op_name, calls)).items(), key=lambda item: (-item[1], item[0])))


def _section(title: str, body: str) -> str:
    return f"{title}\n{body}" if body else ""


def _table(rows: Iterable[list[str]]) -> str:
    """Rows with their columns lined up; the last column is as wide as it is."""
    cells = [list(row) for row in rows]
    if not cells:
        return ""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return "\n".join(("  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True))).rstrip() for row in cells)


def _input_rows(inputs: Iterable[GraphInput]) -> list[list[str]]:
    return [
        [i.name, str(i.role), i.target, _type(i.dtype, i.shape), "needs gradient" if i.requires_grad else ""]
        for i in inputs
    ]


def _output_rows(outputs: Iterable[GraphOutput]) -> list[list[str]]:
    of = {"gradient": "gradient of", "mutation": "new value of"}
    return [[o.name or "-", of.get(o.role, str(o.role)), o.target, _type(o.dtype, o.shape)] for o in outputs]


def _mutations(gm: torch.fx.GraphModule) -> list[list[str]]:
    """`copy_` calls into inputs: (name of the call, name of the placeholder)."""
    copies = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    return [[n.name, n.args[0].name] for n in copies if isinstance(n.args[0], torch.fx.Node)]


def _node_rows(gm: torch.fx.GraphModule) -> list[list[str]]:
    rows = []
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        source = source_of(node)
        rows.append([node.name, _value_type(node.meta.get("val")), _call(node), f"# {source}" if source else ""])
    return rows


def describe_node(node: torch.fx.Node) -> tuple[str, str, str]:
    """(name, type of the result, call) of a node, as `render` prints them."""
    return node.name, _value_type(node.meta.get("val")), _call(node)


def _call(node: torch.fx.Node) -> str:
    if node.op == "get_attr":
        return f"constant {node.target}"
    given = [_argument(a) for a in node.args] + [f"{k}={_argument(v)}" for k, v in node.kwargs.items()]
    return f"{_op_name(node.target)}({', '.join(given)})"


def _op_name(target: Any) -> str:
    """`aten.mm.default`, and Python's own name for symbolic arithmetic, as `mul` or `sym_max`."""
    if isinstance(target, torch_api.OpOverload | torch_api.HigherOrderOperator):
        return str(target)
    return getattr(target, "__name__", str(target))


def _argument(value: Any) -> str:
    if isinstance(value, torch.fx.Node):
        return value.name
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_argument, value))}]"
    return str(value).removeprefix("torch.")


def _value_type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return _type(str(value.dtype).removeprefix("torch."), tuple(map(str, value.shape)))
    if torch_api.is_symint(value):
        return f"{type(value).__name__} {torch_api.expr_of(value)}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_value_type, value))})"
    return "" if value is None else type(value).__name__


def _type(dtype: str, shape: tuple[str, ...] | None) -> str:
    return dtype if shape is None else f"{dtype}[{', '.join(shape)}]"
