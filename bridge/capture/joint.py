"""The joint forward and backward graph of a live module."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx
from torch import nn

from .. import torch_api
from ..schemas import CapturedGraph, GraphKind, InputRole
from .decompose import decompositions
from .isolate import copies, untouched
from .refusal import refusal, refuse_lazy
from .signature import Names, describe


def capture_joint(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    decompose: str = "core_aten",
    dynamic: bool = False,
) -> CapturedGraph:
    """The joint graph of `module(*args, **kwargs)`, or of `loss(module(...))`, traced in the mode the module is in.

    Inputs are parameters, buffers, inputs and one tangent for each differentiable output; outputs are the new values of
    what is mutated, the outputs, and a gradient for each input that needs one. With `dynamic` the sizes of the input
    tensors are symbols (equal sizes share one; what the model itself fixes stays a number). The module is left as it
    was. Raises UserError when the module raises, or cannot be captured as one graph.
    """
    table = decompositions(decompose)
    refuse_lazy(module)
    root = WithLoss(module, loss)
    arguments: tuple[tuple[Any, ...], dict[str, Any]] = (tuple(args), dict(kwargs or {}))
    names = Names(_input_names(arguments), {}, "module.")
    with untouched(module), torch_api.quiet(), contextlib.ExitStack() as stack:
        given = _symbolic(arguments) if dynamic else copies(arguments)
        try:
            joint = torch_api.export_joint(stack, root, given[0], given[1], table)
        except Exception as error:  # whatever the user's forward raises
            raise refusal(error, module, "as one graph") from error
        names = Names(names.inputs, _output_names(joint.out_spec), names.prefix)
        _say_backward_lines(joint.graph_module)
        return describe(joint.graph_module, GraphKind.JOINT, decompose=decompose, names=names)


class WithLoss(nn.Module):
    """A module, and what is computed from its output, as one module: its parameters are named `module.*`."""

    def __init__(self, module: nn.Module, loss: Callable[[Any], torch.Tensor] | None):
        super().__init__()
        self.module = module
        self.loss = loss
        self.training = module.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = self.module(*args, **kwargs)
        return output if self.loss is None else self.loss(output)


def _symbolic(arguments: Any) -> Any:
    """The arguments with every tensor a fake one whose sizes are symbols."""
    mode = torch_api.symbolic_fake_mode()
    return torch_api.tree_map(
        lambda x: torch_api.fake_dynamic(mode, x) if isinstance(x, torch.Tensor) else x, arguments
    )


def _say_backward_lines(gm: torch.fx.GraphModule) -> None:
    """Gives a backward node the stack of the forward node whose gradient it computes.

    Both carry the number that autograd gave to that operation.
    """
    forward: dict[int, str] = {}
    for node in gm.graph.nodes:
        number, trace = node.meta.get("seq_nr"), node.meta.get("stack_trace")
        if number is None:
            continue
        if trace:
            forward.setdefault(number, trace)
        elif number in forward:
            node.meta["stack_trace"] = forward[number]


def _input_names(arguments: Any) -> dict[int, tuple[InputRole, str]]:
    args, kwargs = arguments
    paths = [
        name + path for name, value in (("args", args), ("kwargs", kwargs)) for path, _ in torch_api.tree_paths(value)
    ]
    return {i: (InputRole.INPUT, path) for i, path in enumerate(paths)}


def _output_names(spec: Any) -> dict[int, str]:
    return {i: "output" + path for i, path in enumerate(torch_api.spec_paths(spec))}
