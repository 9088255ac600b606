# SPDX-License-Identifier: Apache-2.0
"""The joint forward and backward graph of a live module."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.fx
from torch import nn

from .. import pytree, torch_api
from ..schemas import CapturedGraph, GraphKind, InputRole
from .decompose import decompositions
from .isolate import untouched
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
    root = _TiedOnce(module, loss)
    arguments: tuple[tuple[Any, ...], dict[str, Any]] = (tuple(args), dict(kwargs or {}))
    names = Names(_input_names(arguments), {}, "module.")
    with untouched(module), torch_api.quiet(), contextlib.ExitStack() as stack:
        given = _without_data(arguments, dynamic)
        try:
            joint = torch_api.export_joint(stack, root, given[0], given[1], table)
        except Exception as error:  # whatever the user's forward raises
            raise refusal(error, module, "as one graph") from error
        names = Names(names.inputs, _output_names(joint.out_spec), names.prefix)
        _flatten_calling_convention(joint.graph_module)
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


class _TiedOnce(WithLoss):
    """A module whose tied parameters and buffers are listed once, under their first name.

    AOTAutograd makes a graph input of every *name*: a tied weight would come twice, each with part of its gradient. It
    asks `named_parameters` and `named_buffers` what there is, and puts its traced tensors in the place of what they
    name; `forward` then puts them in the other places too. `untouched` undoes it.
    """

    def __init__(self, module: nn.Module, loss: Callable[[Any], torch.Tensor] | None):
        super().__init__(module, loss)
        first: dict[int, tuple[dict[str, Any], str]] = {}
        self.ties: list[tuple[tuple[dict[str, Any], str], tuple[dict[str, Any], str]]] = []
        for part in module.modules():
            for members in (part._parameters, part._buffers):
                for name, tensor in members.items():
                    if tensor is None:
                        continue
                    if id(tensor) in first:
                        self.ties.append((first[id(tensor)], (members, name)))
                    first.setdefault(id(tensor), (members, name))

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        return super().named_parameters(prefix, recurse, True)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.Tensor]]:
        return super().named_buffers(prefix, recurse, True)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        for (first, name), (other, other_name) in self.ties:
            other[other_name] = first[name]
        return super().forward(*args, **kwargs)


def _without_data(arguments: Any, dynamic: bool) -> Any:
    """The arguments with every tensor a fake one, which tracing cannot write to.

    The mode takes real tensors too: a loss may close over its targets, a module may keep a mask as a plain attribute.
    They become constants of the graph.
    """
    mode = torch_api.symbolic_fake_mode()
    return pytree.tree_map(
        lambda x: torch_api.fake_tensor(mode, x, dynamic) if isinstance(x, torch.Tensor) else x, arguments
    )


def _flatten_calling_convention(gm: torch.fx.GraphModule) -> None:
    """Makes `gm(*inputs)` take the placeholders one by one; AOTAutograd's takes (list of primals, list of tangents)."""
    gm.graph.set_codegen(torch.fx.graph.CodeGen())
    gm.recompile()


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
        name + path for name, value in (("args", args), ("kwargs", kwargs)) for path, _ in pytree.tree_paths(value)
    ]
    return {i: (InputRole.INPUT, path) for i, path in enumerate(paths)}


def _output_names(spec: Any) -> dict[int, str]:
    return {i: "output" + path for i, path in enumerate(pytree.spec_paths(spec))}
