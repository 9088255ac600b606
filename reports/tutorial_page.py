# SPDX-License-Identifier: Apache-2.0
"""docs/tutorial.md: autograd's tape, the joint graph, backward rules and backends, on examples of a few lines.

`python -m relaxgrad.reports.tutorial_page` runs every listing and writes the page with what it printed. A test makes
the page anew and compares it with the file.
"""

from __future__ import annotations

import contextlib
import io
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.capture import capture_joint
from relaxgrad.coverage.harness.models import describe, load_problem
from relaxgrad.coverage.harness.records import write_text

from .explain.stages import correspondence, forward_nodes, stages
from .markdown import cell, table

TAPE = """
import torch

x, w, b = (torch.tensor(v, requires_grad=True) for v in (2.0, 3.0, 1.0))
loss = x * w + b
print("loss", loss.item())


def tape(node, depth=0):
    if node is not None:
        print("  " * depth + node.name())
        for following, _ in node.next_functions:
            tape(following, depth + 1)


tape(loss.grad_fn)
loss.backward()
print("gradients", x.grad.item(), w.grad.item(), b.grad.item())
"""

INSIDE = """
import torch

w = torch.tensor([2.0, 3.0], requires_grad=True)


def step(x):
    loss = (w * x).square().sum()
    loss.backward()
    return loss.detach()


compiled = torch.compile(step, backend="eager", fullgraph=FULL)
with torch._dynamo.config.patch(trace_autograd_ops=TRACE):
    try:
        print("loss", compiled(torch.ones(2)).item(), "gradient", w.grad.tolist())
    except Exception as error:
        print(type(error).__name__ + ":", str(error).strip().splitlines()[0])
print("graphs", torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""

#: Ops whose local backward rule the page shows: what they are called, and a function of tensors of size (3, 4).
RULES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "x + y": torch.add,
    "x * y": torch.mul,
    "x / y": torch.div,
    "x @ y.T": lambda x, y: x @ y.T,
    "relu(x)": lambda x, y: torch.relu(x),
    "tanh(x)": lambda x, y: torch.tanh(x),
    "sigmoid(x)": lambda x, y: torch.sigmoid(x),
    "exp(x)": lambda x, y: torch.exp(x),
    "log(x)": lambda x, y: torch.log(x),
    "sum(x)": lambda x, y: x.sum(),
    "mean(x, 0)": lambda x, y: x.mean(0),
    "x[0] * y[0]": lambda x, y: x[0] * y[0],
    "x.reshape(4, 3) * 2": lambda x, y: x.reshape(4, 3) * 2,
    "softmax(x, 1)": lambda x, y: torch.softmax(x, 1),
    "dropout(x, 0.5)": lambda x, y: torch.dropout(x, 0.5, True),
}
#: Registered names that are tools for debugging Dynamo itself.
_TOOLS = ("TESTING_ONLY", "minifier", "crossref")


class _Rule(nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.function(x, y)


def page(backends: str = "") -> str:
    """The text of docs/tutorial.md; `backends`: the table of those, where it is not to be measured."""
    parts = [
        "# Tutorial: from autograd to a backend",
        "Made by `python -m relaxgrad.reports.tutorial_page`, which ran every listing here with torch "
        f"{torch.__version__}; a test holds that it would write the same. `relaxgrad explain MODEL -o page.html` shows "
        "the same stages of a whole model.",
        "## Autograd's tape",
        "While the forward pass runs, autograd notes for each result what differentiates it. `backward` walks these "
        "notes from the loss to the leaves; each knows its local rule and nothing else.",
        _ran(TAPE),
        "## The joint graph",
        "AOTAutograd traces the forward pass and the backward pass together. The graph of `relu(x @ w + b)`, before "
        "decomposition, each backward node with the forward node that it differentiates:",
        _joint(),
        "## Local backward rules",
        "What autograd does for the gradient of the first argument, as the joint graph has it. `g` is the gradient of "
        "the result.",
        _rules(),
        "## Which backend owns which layer",
        "`torch.compile` has three layers: Dynamo takes the graph out of Python, AOTAutograd makes forward and "
        "backward graphs of ATen ops out of it, and a compiler makes code of these. Every registered backend gets "
        "Dynamo's graph. What the rest is was measured on a training step of `relu(x @ w + b).sum()`: whether "
        "AOTAutograd ran, and which ATen ops still ran one by one in a step.",
        backends or backends_table(),
        "## `loss.backward()` inside of a compiled function",
        "By default Dynamo breaks the graph at `backward`, or refuses where the whole must be one graph:",
        _ran(INSIDE.replace("FULL", "False").replace("TRACE", "False")),
        _ran(INSIDE.replace("FULL", "True").replace("TRACE", "False")),
        "With `trace_autograd_ops` it traces it:",
        _ran(INSIDE.replace("FULL", "True").replace("TRACE", "True")),
    ]
    return "\n\n".join(parts) + "\n"


def _ran(code: str) -> str:
    """A listing and what it prints."""
    torch.compiler.reset()
    torch_api.dynamo_clear_counters()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), torch_api.quiet():
        exec(compile(code, "<tutorial>", "exec"), {"__name__": "tutorial"})  # a listing of this file
    torch.compiler.reset()
    return f"```python\n{code.strip()}\n```\n\n```text\n{printed.getvalue().strip()}\n```"


def _table(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
    return table([[cell(text) for text in row] for row in rows], columns, ["left"] * len(columns))


def _joint() -> str:
    (stage,) = stages(lambda: load_problem("seed-example"), ["joint"])
    rows = []
    for block in stage.blocks[1:]:
        for row in block.rows:  # type: ignore[union-attr]  # tables
            name, call, result = (c.text for c in row.cells[:3])
            rows.append((f"`{name}`", f"`{call}`", f"`{result}`", *(f"`{c.text}`" for c in row.cells[4:])))
    return _table([(*row, *[""] * (4 - len(row))) for row in rows], ("node", "call", "result", "differentiates"))


def _rules() -> str:
    rows = []
    for name, function in RULES.items():
        x, y = torch.rand(3, 4, requires_grad=True), torch.rand(3, 4)
        graph = capture_joint(_Rule(function), (x, y), decompose="core_aten")
        forward = forward_nodes(graph)
        inputs = {i.name: i for i in graph.inputs}
        names = {n: "g" if i.role == "tangent" else i.target for n, i in inputs.items()}
        names = {n: {"args[0]": "x", "args[1]": "y"}.get(t, t) for n, t in names.items()}
        made = correspondence(graph)
        (output,) = (n for n in graph.module.graph.nodes if n.op == "output")
        gradient = next(
            v
            for v, o in zip(output.args[0], graph.outputs, strict=True)
            if o.role == "gradient" and o.target == "args[0]"
        )
        text = gradient.name if gradient not in made else _expression(gradient, forward, names)
        rows.append((f"`{name}`", f"`{names.get(text, text)}`"))
    return _table(rows, ("forward", "gradient of x"))


def _expression(node: Any, forward: set[Any], names: dict[str, str]) -> str:
    """A backward node as an expression over `g`, the inputs, and forward results, which are named by their op."""
    if not isinstance(node, torch.fx.Node):
        return f"[{', '.join(_expression(n, forward, names) for n in node)}]" if isinstance(node, list) else str(node)
    if node.op == "placeholder":
        return names.get(node.name, node.name)
    op = str(node.target).removeprefix("aten.").split(".")[0]
    if node in forward and node.op == "call_function":
        return f"{op}(...)"
    return f"{op}({', '.join(_expression(a, forward, names) for a in node.args)})"


def backends_table() -> str:
    """What each registered backend does with a training step. Takes as long as they compile."""
    rows = []
    for name in torch.compiler.list_backends(exclude_tags=()):
        if not any(word in name for word in _TOOLS):
            rows.append((f"`{name}`", *_one_backend(name)))
    return _table(rows, ("backend", "AOTAutograd", "ATen ops of a step", "trains"))


def _one_backend(name: str) -> tuple[str, str, str]:
    """(whether AOTAutograd ran, ATen ops that a compiled step runs, whether the gradient is right)."""
    x, w, b = torch.ones(2, 3), torch.ones(3, 4, requires_grad=True), torch.zeros(4, requires_grad=True)

    def forward() -> Tensor:
        return torch.relu(x @ w + b).sum()

    forward().backward()
    expected, w.grad = w.grad, None
    torch.compiler.reset()
    torch_api.dynamo_clear_counters()
    try:
        with torch_api.quiet(), contextlib.redirect_stderr(io.StringIO()):
            compiled = torch.compile(forward, backend=name)
            compiled().backward()
            w.grad = None
            with torch.profiler.profile() as profile:
                loss = compiled()
            loss.backward()
    except Exception as error:
        inner = getattr(error, "inner_exception", None) or error
        reason = textwrap.shorten(describe(inner).partition(" at /")[0], 100)
        return "-", "-", f"no: {reason}"
    aot = "yes" if torch_api.dynamo_counters().get("aot_autograd", {}).get("total") else "no"
    ops = sorted({e.key.removeprefix("aten::") for e in profile.key_averages() if e.key in _WATCHED})
    right = w.grad is not None and expected is not None and torch.equal(w.grad, expected)
    torch.compiler.reset()
    return aot, ", ".join(ops) or "none", "yes" if right else "no"


_WATCHED = {f"aten::{op}" for op in ("mm", "addmm", "matmul", "add", "relu", "sum")}


def main(root: Path) -> int:
    """Writes the page below `root`/docs; 0."""
    write_text(root / "docs" / "tutorial.md", page())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
