# SPDX-License-Identifier: Apache-2.0
"""The torch.compile backend: AOTAutograd's graphs, each compiled by graph.py. Glue only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from . import logs, torch_api
from .capture import coalesce_saved, decompositions
from .errors import UnsupportedOps, UserError
from .graph import compile_graph, compiles_in_children
from .kinds import Reason
from .options import OPTIONS, BackendOptions, parse_options
from .records import planned_nodes, record_graphs
from .schemas import GraphKind

__all__ = ["OPTIONS", "BackendOptions", "compile", "compile_graph", "planned_nodes", "record_graphs", "relaxgrad"]


def relaxgrad(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """Compiles a Dynamo graph and its backward through TVM: `torch.compile(model, backend="relaxgrad")`.

    `options` (a dict):
    - `fallback`: "aten" runs an op without a lowering in ATen inside the compiled graph; "error" raises UnsupportedOps
      with the reasons of the forward and the backward graph, each with the line of the model. torch.compile wraps it in
      BackendCompilerFailed: the message has the list, `error.inner_exception.reasons` has the values.
    - `target`: "auto" (that of the tensors' device, this machine's), or another one of it as
      `targets.resolve_target` takes it.
    - `on_compile_error`, for debugging the bridge: "aten" makes a fault of a converter or of TVM one more reason for
      ATen; "raise" raises it.
    - `cache`: "on" keeps compiled graphs for the next process; "off", as RELAXGRAD_CACHE=0 in the environment, compiles
      anew and keeps nothing.
    - `compile_in`: "child" has a child process compile a large graph, and waits for it when the graph is first called
      (see compile/worker.py); "here" compiles every graph in this process and at once.

    RELAXGRAD_LOGS in the environment prints what becomes of each graph: see logs.py. Raises UserError for other
    options, and for a `mode`, which is Inductor's.
    """
    if unknown := kwargs.keys() - {"options"}:
        raise UserError(
            f"backend relaxgrad takes no {', '.join(sorted(unknown))}; what it takes is options={{...}} with: "
            f"{', '.join(OPTIONS)}"
        )
    options = parse_options(kwargs.get("options"))
    logs.wanted()  # raises for a name that is none, before anything is compiled

    # Both graphs at once: in two processes at the same time, or so that one exception has the reasons of both.
    at_once = compiles_in_children(options) or options.fallback == "error"
    refused: list[Reason] = []  # by the forward graph, of which the backward one is still to come

    def compiler(kind: GraphKind) -> Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]:
        def compile(graph: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
            try:
                run = compile_graph(graph, kind, options)
            except UnsupportedOps as error:
                refused.extend(error.reasons)
                if kind is not GraphKind.FORWARD:
                    raise UnsupportedOps(refused) from None
                return _raises(refused)
            if refused:
                raise UnsupportedOps(refused)
            return run

        return compile

    backend = torch_api.aot_backend(
        fw_compiler=compiler(GraphKind.FORWARD),
        bw_compiler=compiler(GraphKind.BACKWARD),
        inference_compiler=compiler(GraphKind.INFERENCE),
        decompositions=decompositions("core_aten", gm),
        at_once=at_once,
        partition_fn=_partition,
    )
    return backend(gm, example_inputs)


def _partition(*args: Any, num_fwd_outputs: int, **kwargs: Any) -> Any:
    forward, backward = torch_api.partition(*args, num_fwd_outputs=num_fwd_outputs, **kwargs)
    coalesce_saved(forward, backward, num_fwd_outputs)
    return forward, backward


def _raises(reasons: Sequence[Reason]) -> Callable[..., Any]:
    """What stands for a forward graph that was refused, until the compilation of its backward graph raises."""

    def raises(*_: Any) -> Any:
        raise UnsupportedOps(reasons)

    return torch_api.make_boxed_func(raises)


torch_api.trace_recurrent_layers(relaxgrad)


def compile(model: Any, **kwargs: Any) -> Any:
    """`torch.compile(model, backend="relaxgrad", ...)`, for those who import the backend anyway."""
    return torch.compile(model, backend=relaxgrad, **kwargs)
