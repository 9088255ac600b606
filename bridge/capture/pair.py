# SPDX-License-Identifier: Apache-2.0
"""The forward and backward graphs of a module, as torch.compile hands them to a backend."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch import nn

from .. import pytree, torch_api
from ..errors import UserError
from ..schemas import CapturedGraph, GraphKind
from .decompose import decompositions
from .isolate import copies, untouched
from .joint import WithLoss
from .refusal import refusal, refuse_lazy
from .signature import describe

OnRun = Callable[[CapturedGraph, list[Any]], None]


def capture_pair(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    decompose: str = "core_aten",
    dynamic: bool = False,
    on_run: OnRun | None = None,
) -> list[CapturedGraph]:
    """The graphs that one training step of `loss(module(*args, **kwargs))` gives a torch.compile backend.

    In the order in which they are compiled: a FORWARD graph for each part between graph breaks (INFERENCE where nothing
    needs a gradient), and the BACKWARD graphs, each when it first runs. So the step is run, once, by PyTorch; the
    module, its gradients and the random state are left as they were. With `dynamic` the sizes are symbols. `on_run`
    gets each graph with the inputs of its run, before it runs. Raises UserError when the module raises or nothing of it
    could be compiled.

    What this process compiled is forgotten (`torch.compiler.reset`), before and after: Dynamo remembers, for each
    function, that it gave up on it or recompiled it too often, and would then hand over fewer graphs than there are.
    """
    decompositions(decompose)  # raises for an unknown name before anything runs
    refuse_lazy(module)
    graphs: list[CapturedGraph] = []
    root = WithLoss(module, loss)

    def step(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return root(*args, **kwargs)

    torch.compiler.reset()
    with untouched(module), torch_api.quiet(), torch_api.dynamo_config_patch(allow_rnn=True):
        given = copies((tuple(args), dict(kwargs or {})))
        compiled = torch.compile(step, backend=_collector(graphs, decompose, on_run), dynamic=dynamic or None)
        try:
            with torch.enable_grad():
                _backward(compiled(given[0], given[1]), module, given)
        except Exception as error:  # whatever the user's forward raises
            raise refusal(error, module, "through torch.compile") from error
        finally:
            torch.compiler.reset()
    if not graphs:
        raise UserError(
            f"torch.compile found nothing to compile in {type(module).__name__}.forward and ran it in eager PyTorch; "
            "run with TORCH_LOGS=graph_breaks to see why"
        )
    return graphs


def _users_path(source: str) -> str:
    """Dynamo's access path without what capture wrapped around the module: `args[0]`, `L['self']._modules['fc']`."""
    source = source.replace("L['root']._modules['module']", "L['self']", 1)
    return re.sub(r"^L\['(args|kwargs)'\]", r"\1", source)


def _collector(graphs: list[CapturedGraph], decompose: str, on_run: OnRun | None) -> Callable[..., Any]:
    """A backend that keeps each graph with its signature and has PyTorch run it."""

    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        sources = [None if source is None else _users_path(source) for source in torch_api.input_sources(gm)]

        def keep(kind: GraphKind) -> torch_api.Compiler:
            def compiler(graph: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
                captured = describe(graph, kind, sources=sources, decompose=decompose)
                graphs.append(captured)

                def run(*inputs: Any) -> Any:
                    if on_run is not None:
                        on_run(captured, list(inputs))
                    return graph.forward(*inputs)

                return torch_api.make_boxed_func(run)

            return compiler

        compile_graph = torch_api.aot_backend(
            keep(GraphKind.FORWARD), keep(GraphKind.BACKWARD), keep(GraphKind.INFERENCE), decompositions(decompose, gm)
        )
        return compile_graph(gm, example_inputs)

    return backend


def _backward(output: Any, module: nn.Module, arguments: Any) -> None:
    """Runs the backward of everything in `output` that has one, without touching any `.grad`."""
    outputs = [t for t in pytree.tree_leaves(output) if isinstance(t, torch.Tensor) and t.requires_grad]
    sources = [*module.parameters(), *pytree.tree_leaves(arguments)]
    wanted = [t for t in sources if isinstance(t, torch.Tensor) and t.is_leaf and t.requires_grad]
    if outputs and wanted:
        torch.autograd.grad(outputs, wanted, [torch.ones_like(t) for t in outputs], allow_unused=True)
