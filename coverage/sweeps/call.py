# SPDX-License-Identifier: Apache-2.0
"""Runs one call of an operator, forward and backward: in eager, in another dtype, or under torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from relaxgrad.bridge import pytree, torch_api
from relaxgrad.bridge.schemas import GraphRecord

from ..harness.models import describe
from .values import copy_inputs

SEED = 20  # of every run whose values are compared


@dataclass(frozen=True)
class Call:
    """One call: `function(*args, **kwargs)`. Filled by the sweeps."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    unset: bool = False  # the op leaves its result's memory unset (torch.empty)
    backward: bool = True
    zeros: bool = False  # zeros are what the op is for (torch.zeros), so zeros prove it
    picks: bool = False  # returns (values, indices), and which of equal values it picks is not promised


#: Ops that return zeros by definition, and those that leave their memory unset.
ZEROS = frozenset({"zeros", "zeros_like", "new_zeros", "zero"})
UNSET = frozenset({"empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted"})

#: Ops whose choice among equal values follows from how eager's kernel happens to partition them.
PICKS = frozenset({"topk", "kthvalue", "median", "nanmedian", "mode", "sort", "msort"})


def call_of(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], backward: bool
) -> Call:
    """A call of the op `name` (without namespace and overload), with what is known of it by name."""
    base = name.rstrip("_")
    return Call(function, args, kwargs, base in UNSET, backward, base in ZEROS, base in PICKS)


@dataclass
class Run:
    """What one run of a call left behind."""

    outputs: dict[str, Tensor | None]
    plain: dict[str, Any]  # outputs that are not tensors
    inputs: dict[str, Tensor]  # after the run
    gradients: dict[str, Tensor | None] = field(default_factory=dict)
    differentiable: list[str] = field(default_factory=list)
    backward_error: str = ""


def run_call(call: Call, function: Callable[..., Any], tangents: dict[str, Tensor], seed: int, wide: Any = None) -> Run:
    """One forward and backward. Fills `tangents` where it is empty. Raises what the forward raises.

    `wide`: the dtype in which floating-point inputs and tangents are given, in place of their own.
    """
    args, kwargs = copy_inputs((call.args, call.kwargs), wide)
    torch.manual_seed(seed)
    returned = function(*args, **kwargs)
    outputs: dict[str, Tensor | None] = {}
    plain: dict[str, Any] = {}
    for path, leaf in pytree.tree_paths(returned):
        (outputs if isinstance(leaf, Tensor) else plain)[f"out{path}"] = leaf
    given = {name: leaf for name, leaf in pytree.tree_paths((args, kwargs)) if isinstance(leaf, Tensor)}
    tensors: dict[str, Tensor] = {name: t for name, t in outputs.items() if t is not None}
    detached = {name: None if t is None else t.detach() for name, t in outputs.items()}
    run = Run(detached, plain, {f"input{name}": t.detach() for name, t in given.items()})
    run.differentiable = [name for name, t in outputs.items() if t is not None and t.requires_grad]
    leaves = {f"grad{name}": t for name, t in given.items() if t.requires_grad}
    if not (run.differentiable and leaves and call.backward):
        return run
    generator = torch.Generator().manual_seed(seed)
    if not tangents:
        for name in run.differentiable:
            tangents[name] = _tangent(outputs[name], generator)
    chosen = [name for name in run.differentiable if name in tangents]
    given_tangents = [_widened(tangents[name], wide) for name in chosen]
    try:
        found = torch.autograd.grad(
            [tensors[name] for name in chosen], list(leaves.values()), given_tangents, allow_unused=True
        )
    except Exception as error:
        if function is not call.function:  # the compiled one: its failure is the finding
            raise
        run.backward_error = describe(error)
        tangents.clear()
        return run
    run.gradients = dict(zip(leaves, found, strict=True))
    return run


def _tangent(output: Tensor | None, generator: torch.Generator) -> Tensor:
    assert output is not None
    if output.layout is not torch.strided or output.is_nested:
        return torch.ones_like(output)
    wide = torch.complex128 if output.is_complex() else torch.float64
    return torch.randn(output.shape, dtype=wide, generator=generator).to(output.dtype)


def _widened(tensor: Tensor, wide: Any) -> Tensor:
    if wide is None:
        return tensor
    return tensor.to(wide if tensor.is_floating_point() else torch.complex128)


class Compiled:
    """The call's function under torch.compile. The first run finds the capture that works; later ones keep it."""

    def __init__(self, function: Callable[..., Any], dynamic: bool, backend: Any):
        self._function = function
        self._dynamic = dynamic
        self._backend = backend
        self.capture = ""
        self.graphs: list[GraphRecord] = []
        self._compiled: Callable[..., Any] | None = None

    def run(self, call: Call, tangents: dict[str, Tensor]) -> Run:
        from relaxgrad.bridge.backend import record_graphs

        # Numbers among the arguments stay numbers: --dynamic is about sizes, and some ops take no symbolic kernel size.
        with record_graphs() as graphs, torch_api.dynamo_config_patch(specialize_int=True):
            try:
                if self._compiled is not None:
                    return run_call(call, self._compiled, tangents, SEED)
                return self._first(call, tangents, graphs)
            finally:
                self.graphs += graphs

    def _first(self, call: Call, tangents: dict[str, Tensor], graphs: list[GraphRecord]) -> Run:
        """Whole where Dynamo can, else with graph breaks; `graphs` keeps those of the capture taken."""
        self.capture = "whole"
        try:
            return self._try(call, tangents, fullgraph=True)
        except Exception:
            # Asking for a whole graph also makes torch capture shapes that depend on data, which it leaves out by
            # default. A fault of the backend is raised again below, from the same graph.
            graphs.clear()
            torch.compiler.reset()
            self.capture = "breaks"
            return self._try(call, tangents, fullgraph=False)

    def _try(self, call: Call, tangents: dict[str, Tensor], fullgraph: bool) -> Run:
        from relaxgrad.bridge.backend import relaxgrad

        self._compiled = torch.compile(
            self._function, backend=self._backend or relaxgrad, fullgraph=fullgraph, dynamic=self._dynamic
        )
        return run_call(call, self._compiled, tangents, SEED)


def run_by_torch(call: Call, tangents: dict[str, Tensor], dynamic: bool = False) -> Run | None:
    """The call through AOTAutograd with our decompositions and PyTorch's kernels; None where that fails."""
    from relaxgrad.bridge.capture import decompositions

    def compiler(gm: Any, _: Any) -> Callable[..., Any]:
        return torch_api.make_boxed_func(gm.forward)

    torch.compiler.reset()
    backend = torch_api.aot_backend(compiler, compiler, compiler, decompositions("core_aten"))
    try:
        return run_call(call, torch.compile(call.function, backend=backend, dynamic=dynamic), tangents, SEED)
    except Exception:
        return None
