# SPDX-License-Identifier: Apache-2.0
"""New values of inputs in the memory of the old ones.

A graph that writes an input (an optimizer's parameters and moments) computes the new value, and the runtime copies it
into the old one's memory: of AdamW's tensors 13 values cross memory for each element, where 7 have to. Here a kernel
that computes the new value of a parameter of `main` writes it there, if that is safe:

- nothing else reads the old value, but for kernels that have run by then;
- within the kernel each element is read where it is written, and before: see `_one_by_one`.

The new value is no result of `main` any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx
from tvm_ffi.structural import structural_equal

from ...attributes import NEW_VALUES, OVERWRITES, WRITTEN, is_kernel_call
from ...importer.compute.layout import is_one
from ..schedule.analysis import collect, has_root, nests

#: Suffix of the name of a kernel that overwrites an argument, with a number where there are several.
_SUFFIX = "_in_place"


@dataclass(frozen=True)
class _Write:
    """One result of a call that can take the memory of one of its arguments."""

    pair: tuple[int, int]  # of NEW_VALUES
    output: int  # number among the call's results
    argument: int  # and among its arguments


def before_in_place(name: str) -> str:
    """The name of the kernel of which this one is the form that overwrites arguments; any other name as it is."""
    return re.sub(rf"{_SUFFIX}\d*$", "", name)


def write_in_place() -> Any:
    """The pass; it comes after the kernels are scheduled, and before anything makes views of tensors."""
    return _WriteInPlace()


@tvm.transform.module_pass(opt_level=0, name="WriteInPlace")
class _WriteInPlace:
    def transform_module(self, module: tvm.IRModule, _: Any) -> tvm.IRModule:
        main = module["main"]
        pairs = [(int(result), int(param)) for result, param in (main.attrs or {}).get(NEW_VALUES, ())]
        if not pairs:
            return module
        writes: dict[Any, list[_Write]] = {}  # variable of the call -> its writes
        bindings = _Bindings(main, module)
        for pair in pairs:
            if (found := bindings.write_of(pair)) is not None:
                writes.setdefault(found[0], []).append(found[1])
        return _rewritten(module, writes) if writes else module


class _Bindings:
    """The bindings of `main`, and who reads what."""

    def __init__(self, main: relax.Function, module: tvm.IRModule):
        self._main = main
        self._module = module
        self._of: dict[Any, tuple[int, Any]] = {}  # variable -> (number of its binding, value)
        self._readers: dict[Any, list[tuple[int, Any]]] = {}  # variable -> the same of those that read it
        every = (binding for block in main.body.blocks for binding in block.bindings)
        for number, binding in enumerate(every):
            self._of[binding.var] = number, binding.value
            for var in set(relax.analysis.all_vars(binding.value)):
                self._readers.setdefault(var, []).append((number, binding.value))

    def write_of(self, pair: tuple[int, int]) -> tuple[Any, _Write] | None:
        """(variable of the call, its write) for a result that its kernel can write into a parameter; else None."""
        result, param = self._main.body.body.fields[pair[0]], self._main.params[pair[1]]
        var, output = result, 0
        number, value = self._of.get(var, (0, None))
        if isinstance(value, relax.TupleGetItem):
            var, output = value.tuple_value, int(value.index)
            number, value = self._of.get(var, (0, None))
        if not is_kernel_call(value):
            return None
        arguments = [k for k, given in enumerate(value.args[1].fields) if given.same_as(param)]
        if len(arguments) != 1 or any(field.same_as(param) for field in self._main.body.body.fields):
            return None
        if not all(at == number or (at < number and self._copies(reader)) for at, reader in self._readers[param]):
            return None
        function = self._module[value.args[0]]
        count = len(value.args[1].fields)
        if not _one_by_one(function, function.params[arguments[0]], function.params[count + output]):
            return None
        return var, _Write(pair, output, arguments[0])

    def _copies(self, reader: Any) -> bool:
        """Whether nothing that a reader makes shares memory with what it reads."""
        return is_kernel_call(reader) and not relax.analysis.has_reshape_pattern(self._module[reader.args[0]])


def _rewritten(module: tvm.IRModule, writes: Mapping[Any, Sequence[_Write]]) -> tvm.IRModule:
    """The module with these calls in place, and without their results."""
    main = module["main"]
    builder = relax.BlockBuilder(module)
    kernels: dict[Any, Any] = {}  # (kernel, its writes) -> the kernel that does them

    def in_place(call: relax.Call, of_call: Sequence[_Write]) -> relax.Call:
        taken = {write.output: write.argument for write in of_call}
        key = call.args[0], tuple(taken.items())
        if key not in kernels:
            function = _overwriting(module[call.args[0]], len(call.args[1].fields), of_call)
            kernels[key] = builder.add_func(function, f"{call.args[0].name_hint}{_SUFFIX}")
        types = call.ty_args[0]
        outputs = list(types.fields) if isinstance(types, relax.TupleType) else [types]
        indices = [taken.get(number, -1) for number in range(len(outputs))]
        return builder.normalize(relax.op.call_tir_inplace(kernels[key], call.args[1], indices, outputs))

    blocks = []
    for block in main.body.blocks:
        bindings = [
            relax.VarBinding(b.var, in_place(b.value, writes[b.var])) if b.var in writes else b for b in block.bindings
        ]
        blocks.append(type(block)(bindings))
    done = [write.pair for of_call in writes.values() for write in of_call]
    gone = {result for result, _ in done}
    kept = [field for number, field in enumerate(main.body.body.fields) if number not in gone]
    body = relax.SeqExpr(blocks, builder.normalize(relax.Tuple(kept)))
    function = relax.Function(main.params, body, relax.TupleType([v.ty for v in kept]), main.is_pure, main.attrs)
    builder.update_func(module.get_global_var("main"), function.with_attr(WRITTEN, [list(pair) for pair in done]))
    called = set(_called(blocks))
    updated = builder.get()
    functions = {
        v: f for v, f in updated.functions.items() if not isinstance(f, tirx.PrimFunc) or v.name_hint in called
    }
    return tvm.IRModule(functions, attrs=updated.attrs)


def _called(blocks: Iterable[Any]) -> Iterator[str]:
    """Names of the functions that the bindings call."""
    for block in blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call):
                yield from (str(arg.name_hint) for arg in binding.value.args if isinstance(arg, ir.GlobalVar))


def _overwriting(function: tirx.PrimFunc, arguments: int, writes: Sequence[_Write]) -> tirx.PrimFunc:
    """The kernel that writes these results of its own into arguments; it has no parameters for them."""
    params = list(function.params)
    into = {params[arguments + w.output]: params[w.argument] for w in writes}
    body = tvm_ffi.structural_map(function.body, (tirx.Var, lambda var: into.get(var, var)))
    kept = [param for param in params if param not in into]
    overwriting = tirx.PrimFunc(kept, body, function.ret_type, function.attrs, function.span)
    return overwriting.with_attr(OVERWRITES, [w.argument for w in writes])


# ---- what is safe within a kernel ----


def _one_by_one(function: tirx.PrimFunc, old: Any, new: Any) -> bool:
    """Whether a kernel reads each element of `old` only where it computes that of `new`, and before it is written.

    A block that accesses one of them does so at the place of its own element. Where such blocks are several, all lie
    in one nest of loops, one after the other: each takes the same elements in a step of it, and none reads `old` after
    the one that writes `new`.
    """
    if not structural_equal((old.ty.shape, old.ty.dtype), (new.ty.shape, new.ty.dtype)):
        return False
    if not has_root(function):
        return False
    own: list[Any] = []  # what tells the steps apart in which a block takes its elements
    is_written = False
    for number, nest in enumerate(nests(function)):
        for loops, realize in _leaves(nest, ()):
            if not isinstance(realize, s_tir.SBlockRealize) or not isinstance(realize.block.body, tirx.BufferStore):
                return False
            store = realize.block.body
            loads = collect(store, ir.TensorLoad)
            touched = [load.indices for load in loads if load.source.same_as(old) or load.source.same_as(new)]
            if store.buffer.same_as(new):
                touched.append(store.indices)
            if not touched:
                continue
            own_place = realize.block.iter_vars
            if realize.block.init is not None or len(loops) > len(_LOOPS):
                return False
            if not all(_are(indices, own_place, old.ty.shape) for indices in touched):
                return False
            if is_written and any(load.source.same_as(old) for load in loads):
                return False
            is_written = is_written or store.buffer.same_as(new)
            own.append((number, _steps(realize, loops)))
    return is_written and all(structural_equal(steps, own[0]) for steps in own)


#: Names for the loops around a block, from the outermost.
_LOOPS = [tirx.Var(f"loop{number}", "int64") for number in range(16)]


def _steps(realize: Any, loops: Sequence[Any]) -> Any:
    """Which element a block computes in which step of its loops: equal for blocks that go the same way."""
    named = {loop.loop_var: _LOOPS[number] for number, loop in enumerate(loops)}
    extents = [(loop.min, loop.extent) for loop in loops]
    place = [*realize.iter_values, realize.predicate]
    return extents, [tvm_ffi.structural_map(part, (tirx.Var, lambda var: named.get(var, var))) for part in place]


def _leaves(statement: Any, loops: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The blocks below a statement, and what else is no loop, in order, each with the loops around it."""
    if isinstance(statement, tirx.For):
        yield from _leaves(statement.body, (*loops, statement))
    elif isinstance(statement, tirx.SeqStmt):
        for part in statement.seq:
            yield from _leaves(part, loops)
    else:
        yield loops, statement


def _are(indices: Sequence[Any], variables: Sequence[tirx.IterVar], shape: Sequence[Any]) -> bool:
    """Whether the indices are a block's variables, in order; dims of one element count for nothing."""
    several = [v.var for v in variables if not is_one(v.dom.extent)]
    left = [index for index, size in zip(indices, shape, strict=True) if not is_one(size)]
    return len(left) == len(several) and all(i.same_as(v) for i, v in zip(left, several, strict=True))
