# SPDX-License-Identifier: Apache-2.0
"""What the importer hands on: a Relax module and the plan by which the runtime feeds it and reads it.

Sizes that depend on symbols are never computed twice: each distinct expression has a number in `CallingPlan.scalars`,
the runtime evaluates them all once a call, and plans refer to them as `ScalarRef`.

A plan is plain data: it can be stored, and a process that loads one needs neither TVM's compiler nor sympy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from .kinds import Kind, Reason

if TYPE_CHECKING:
    import tvm

#: Packed function behind every call into ATen: (number of the call, *tensors) -> result or array of results.
EXTERN_FUNCTION = "relaxgrad.extern_call"


@dataclass(frozen=True)
class ScalarRef:
    """Number of an expression in `CallingPlan.scalars`."""

    index: int


#: A number known when compiling, or a reference to one computed once a call.
Number = int | float | bool | ScalarRef


@dataclass(frozen=True)
class Strided:
    """A view: sizes, strides and offset in elements, the offset counted from the start of the viewed tensor."""

    size: tuple[Number, ...]
    stride: tuple[Number, ...]
    offset: Number = 0


@dataclass(frozen=True)
class TensorParam:
    """A tensor that enters the Relax function: graph input (or constant) number `index`."""

    index: int
    order: tuple[int, ...] | None  # memory order of its dims, outermost first; None: not dense, made contiguous
    empty: bool = False  # has no elements


@dataclass(frozen=True)
class OpaqueParam:
    """A graph input that TVM cannot type; only ATen calls read it."""

    index: int


@dataclass(frozen=True)
class ScalarParam:
    """A symbolic float that native kernels read as a 0-d float64 tensor."""

    scalar: ScalarRef


Param = TensorParam | OpaqueParam | ScalarParam


@dataclass(frozen=True)
class SymbolSource:
    """Where the value of a symbol is read: the input itself, or a size or stride of it."""

    symbol: str  # its name in `CallingPlan.scalars`
    index: int
    dim: int | None = None  # None: the input is the number
    stride: bool = False
    # What is seen there is scale * symbol + shift.
    scale: int = 1
    shift: int = 0
    argument: bool = True  # of `main`; a float is none, nor is a number that no kernel reads


@dataclass(frozen=True)
class FromConstant:
    """None, or a plain number."""

    value: Any


@dataclass(frozen=True)
class FromScalar:
    """A symbolic number."""

    scalar: ScalarRef


@dataclass(frozen=True)
class FromInput:
    """The graph input (or constant) itself, or a view of its memory."""

    index: int
    view: Strided | None = None


@dataclass(frozen=True)
class FromFunction:
    """Result number `index` of the Relax function, with the layout that eager gives it."""

    index: int
    view: Strided | None = None
    opaque: bool = False
    relayout: bool = False  # copied into the layout of `view`, which no view of a row-major result has


OutputPlan = FromConstant | FromScalar | FromInput | FromFunction


@dataclass(frozen=True)
class InPlace:
    """What the function itself has written into the memory of its argument number `argument`."""

    argument: int


@dataclass(frozen=True)
class Mutation:
    """The new value of graph input `index`, in the input's memory once the function has run."""

    index: int
    source: OutputPlan | InPlace


# ---- calls into ATen ----


@dataclass(frozen=True)
class TensorArg:
    """Argument number `position` of the packed call, seen through `view` where it is not the whole tensor."""

    position: int
    view: Strided | None = None
    opaque: bool = False


@dataclass(frozen=True)
class ExternResult:
    """What the packed call returns for one output of the op; None where it is not read."""

    order: tuple[int, ...] | None = None  # permute to this order, then contiguous
    opaque: bool = False
    dtype: torch.dtype | None = None  # of its FakeTensor, as are the sizes; not of an opaque one
    size: tuple[Number, ...] = ()


@dataclass
class ExternCall:
    """One call into ATen from the compiled graph."""

    node: str  # name of the FX node
    target: Callable[..., Any]
    args: Any  # pytree whose leaves are TensorArg, ScalarRef or plain values
    kwargs: dict[str, Any]
    results: tuple[ExternResult | None, ...]
    single: bool  # the op returns one tensor, not a tuple
    kind: Kind
    non_aliasing: bool  # the results never share memory with the arguments


@dataclass
class NodeReport:
    """How one node of the graph runs."""

    node: str
    op: str
    kind: Kind
    reason: Reason | None = None


@dataclass
class CallingPlan:
    """How the runtime calls `main` and what it makes of its results. Filled by translate.py."""

    sources: list[SymbolSource]  # for every symbol; the arguments are the first parameters of `main`, in this order
    scalars: list[str]  # Python source of expressions over the symbols, with `math` and `torch` in scope
    params: list[Param]  # the other parameters of `main`
    input_count: int
    constant_count: int  # graph inputs after the real ones
    split_inputs: list[int]  # inputs whose slices along the first dim, those of each in order, come after the constants
    mutations: list[Mutation]
    outputs: list[OutputPlan]
    result_count: int  # results of `main`
    extern_calls: list[ExternCall]

    def in_place(self, written: Mapping[int, int]) -> CallingPlan:
        """The plan where results (number -> argument that has its memory) are written in place, and are none any more.

        Such a result is the source of one mutation and of nothing else.
        """
        left = [number for number in range(self.result_count) if number not in written]
        numbers = {number: new for new, number in enumerate(left)}

        def moved(plan: Any) -> Any:
            if not isinstance(plan, FromFunction):
                return plan
            return InPlace(written[plan.index]) if plan.index in written else replace(plan, index=numbers[plan.index])

        return replace(
            self,
            mutations=[replace(mutation, source=moved(mutation.source)) for mutation in self.mutations],
            outputs=[moved(output) for output in self.outputs],
            result_count=len(left),
        )


@dataclass
class Translation:
    """A Relax module whose function `main` computes the graph, with its calling plan. Filled by translate.py."""

    module: tvm.IRModule
    plan: CallingPlan
    constants: list[torch.Tensor]  # the values of the graph's attributes
    nodes: list[NodeReport] = field(default_factory=list)
    kernels: dict[str, set[str]] = field(default_factory=dict)  # kernel in `module` -> the FX nodes that it computes

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return tuple(n.reason for n in self.nodes if n.reason is not None)
