# SPDX-License-Identifier: Apache-2.0
"""Kernels with several results: element-wise kernels over the same elements that read the same tensors become one.

TVM's FuseOps puts a producer and its only reader into one kernel. A value that has several readers, or that the graph
returns as well (a saved activation), ends a kernel, and its reader fetches it from memory again. Here such
neighbours are put together: what one of them computed or read is still at hand when the next one wants it, and a graph
of many small kernels (the cell of a recurrent layer) has fewer calls.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.op.base import call_tir
from tvm_ffi.structural import structural_equal

from ...attributes import OPAQUE, is_kernel_call

#: Bindings from a group's first kernel to its last: some of its inputs live longer than they had to, or its results.
DISTANCE = 32
#: The same for results of more than LARGE bytes, or of unknown size: what lives longer would be the peak of memory.
NEAR, LARGE = 3, 1 << 20
#: Tensors of one kernel, the results included: streams through memory for a core's prefetchers to follow.
MOST_TENSORS = 24
#: Letters of a group's name, which is made of its kernels'.
LONGEST_NAME = 120


@dataclass(frozen=True)
class _Call:
    """A binding of a kernel's result that may be part of a group."""

    number: int  # of the binding
    binding: relax.VarBinding
    shape: Sequence[Any]
    sizes: tuple[int, ...] | None  # the shape, where it is known
    is_large: bool
    inputs: frozenset[Any]

    @classmethod
    def of(cls, number: int, binding: relax.VarBinding) -> _Call:
        result = binding.value.ty_args[0]
        shape = list(result.shape.values)
        sizes = _sizes(shape)
        width = max(1, tvm.DataType(str(result.dtype)).bits // 8)
        is_large = sizes is None or math.prod(sizes) * width > LARGE
        return cls(number, binding, shape, sizes, is_large, frozenset(binding.value.args[1].fields))


@dataclass
class _Group:
    """Calls that become one, in order. It stands in the place of its last one, or where the first reader needs it."""

    first: _Call
    place: int = 0  # number of the binding in whose place it stands
    is_read: bool = False  # by others: its place is settled
    members: list[relax.VarBinding] = field(default_factory=list)
    tensors: set[Any] = field(default_factory=set)  # variables that they read or bind

    @property
    def results(self) -> set[Any]:
        return {member.var for member in self.members}

    def takes(self, call: _Call, known_from: Callable[[Any], int]) -> bool:
        """Whether a call may join, and gains by it: it reads a tensor that the group has."""
        if call.is_large and call.number - self.first.number > NEAR:
            return False
        if call.sizes != self.first.sizes:
            return False
        shared = call.inputs & self.tensors
        if not shared or (call.sizes is None and not structural_equal(self.first.shape, call.shape)):
            return False
        if self.is_read and any(known_from(v) >= self.place for v in call.inputs - self.results):
            return False
        if len(self.tensors | call.inputs) >= MOST_TENSORS:
            return False
        return any(_is_as_large(v.ty.shape.values, call) for v in shared)

    def add(self, call: _Call) -> None:
        self.members.append(call.binding)
        self.tensors.update(call.inputs, [call.binding.var])
        if not self.is_read:
            self.place = call.number


def fuse_horizontally(is_element_wise: Callable[[tirx.PrimFunc], bool]) -> Any:
    """A module pass, to run when every kernel is a call_tir. FuseTIR makes one kernel of each group after it.

    `is_element_wise`: whether a function computes each element of its result in one step, and in the result's order.
    """

    @tvm.transform.module_pass(opt_level=0, name="FuseHorizontally")
    def apply(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        main = module["main"]
        known: dict[Any, bool] = {}
        views: dict[Any, bool] = {}

        def is_call(binding: Any) -> bool:
            """Whether a binding is of a kind that may be part of a group, whatever its kernel does."""
            call = binding.value
            if not is_kernel_call(call):
                return False
            result, given = call.ty_args[0], call.args[1].fields
            if not isinstance(result, relax.TensorType) or not len(result.shape.values):
                return False
            return all(isinstance(a, relax.Var) and isinstance(a.ty, relax.TensorType) for a in given)

        def joins(binding: Any) -> bool:
            """Whether its kernel may: asked where it has a partner, since looking into a kernel takes milliseconds."""
            kernel = binding.value.args[0]
            if kernel not in known:
                function = module[kernel]
                is_alone = int((function.attrs or {}).get("op_pattern", 0)) == OPAQUE
                known[kernel] = not is_alone and is_element_wise(function)
                views[kernel] = relax.analysis.has_reshape_pattern(function)
            # A reshape between kernels shares its input's memory: RewriteDataflowReshape makes no kernel of it.
            return known[kernel] and not (views[kernel] and isinstance(binding.var, relax.DataflowVar))

        builder = relax.BlockBuilder(module)
        blocks = []
        for block in main.body.blocks:
            groups = _groups(block.bindings, is_call, joins) if isinstance(block, relax.DataflowBlock) else []
            blocks.append(relax.DataflowBlock(_together(builder, block.bindings, groups)) if groups else block)
        body = relax.SeqExpr(blocks, main.body.body)
        builder.update_func(
            module.get_global_var("main"), relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
        )
        return builder.get()

    return apply


def _groups(bindings: Sequence[Any], is_call: Callable[[Any], bool], joins: Callable[[Any], bool]) -> list[_Group]:
    """The groups of two calls or more, each in a place where all its inputs are known and no earlier reader needs
    it."""
    groups: list[_Group] = []
    group_of: dict[Any, _Group] = {}
    numbers: dict[Any, int] = {}

    def known_from(var: Any) -> int:
        return group_of[var].place if var in group_of else numbers.get(var, -1)  # -1: of the graph

    for number, binding in enumerate(bindings):
        own = None
        if is_call(binding):
            call = _Call.of(number, binding)
            fitting = (g for g in _near(groups, number) if g.takes(call, known_from))
            own = next((g for g in fitting if joins(binding) and joins(g.members[0])), None)
            if own is None:
                own = _Group(call)
                groups.append(own)
        for var in relax.analysis.all_vars(binding.value):
            if var in group_of and group_of[var] is not own:
                group_of[var].is_read = True
        if own is not None:
            own.add(call)
            group_of[binding.var] = own
        numbers[binding.var] = number
    return [group for group in groups if len(group.members) > 1]


def _near(groups: Sequence[_Group], number: int) -> Iterator[_Group]:
    """The groups that began at most DISTANCE bindings before this one, the latest first."""
    return itertools.takewhile(lambda group: number - group.first.number <= DISTANCE, reversed(groups))


def _together(builder: relax.BlockBuilder, bindings: Sequence[Any], groups: Sequence[_Group]) -> list[Any]:
    """The bindings with one call for each group, in its place."""
    grouped = {member.var for group in groups for member in group.members}
    readers: dict[Any, int] = {}
    for binding in bindings:
        for var in set(relax.analysis.all_vars(binding.value)):
            readers[var] = readers.get(var, 0) + 1
    found: list[Any] = []
    at = {group.place: group for group in groups}
    for number, binding in enumerate(bindings):
        if number in at:
            found += _one_call(builder, at[number], readers)
        elif binding.var not in grouped:
            found.append(binding)
    return found


def _one_call(builder: relax.BlockBuilder, group: _Group, readers: dict[Any, int]) -> Iterable[Any]:
    """The bindings of a group's results to those of a new function, which calls its kernels one after the other."""
    within: dict[Any, int] = {}
    for member in group.members:
        for var in set(member.value.args[1].fields):
            within[var] = within.get(var, 0) + 1
    # A variable that is not of the block alone is an output of it.
    wanted = [
        member.var
        for member in group.members
        if not isinstance(member.var, relax.DataflowVar) or readers.get(member.var, 0) > within.get(member.var, 0)
    ]
    own = group.results
    inputs = list(dict.fromkeys(v for m in group.members for v in m.value.args[1].fields if v not in own))
    values: dict[Any, Any] = {var: relax.Var(f"x{number}", var.ty) for number, var in enumerate(inputs)}
    names = "_".join(m.value.args[0].name_hint.removeprefix("fused_") for m in group.members)
    name = f"fused_{names}"[:LONGEST_NAME]
    with builder.function(name, list(values.values()), attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            for member in group.members:
                call = member.value
                given = relax.Tuple([values[v] for v in call.args[1].fields])
                made = call_tir(call.args[0], given, call.ty_args[0])
                values[member.var] = (
                    builder.emit_output(made) if any(member.var.same_as(w) for w in wanted) else builder.emit(made)
                )
            results = [values[var] for var in wanted]
        function = builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    call = builder.normalize(relax.Call(function, inputs))
    if len(wanted) == 1:
        return [relax.VarBinding(wanted[0], call)]
    whole = relax.DataflowVar("siblings", call.ty)
    parts = (builder.normalize(relax.TupleGetItem(whole, number)) for number in range(len(wanted)))
    return [
        relax.VarBinding(whole, call),
        *(relax.VarBinding(var, part) for var, part in zip(wanted, parts, strict=True)),
    ]


def _sizes(shape: Sequence[Any]) -> tuple[int, ...] | None:
    """A shape as numbers; None where one is not known."""
    return tuple(map(int, shape)) if all(isinstance(n, tirx.IntImm) for n in shape) else None


def _is_as_large(shape: Sequence[Any], call: _Call) -> bool:
    """Whether a tensor of this shape has as many elements as a call's result; where that is unknown, the same shape."""
    sizes = _sizes(shape)
    if sizes is not None and call.sizes is not None:
        return math.prod(sizes) >= math.prod(call.sizes)
    return bool(structural_equal(shape, call.shape))
