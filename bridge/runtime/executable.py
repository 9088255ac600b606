"""A compiled graph as a function from tensors to tensors with eager's strides, aliasing and mutation.

Note [Memory and sizes]
TVM's pooled allocator keeps a block of every size that it ever served. A graph with symbolic sizes that sees many distinct
sizes would grow without end; so a count of distinct sizes is kept, and past a bound the pool's free blocks are given back.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
import tvm
import tvm_ffi
from tvm import relax

from .. import torch_api
from ..importer.translation import (
    FromConstant,
    FromFunction,
    FromInput,
    FromScalar,
    OpaqueParam,
    OutputPlan,
    ScalarParam,
    ScalarRef,
    Strided,
    SymbolSource,
    TensorParam,
    Translation,
)
from ..schemas import GraphRecord
from .sites import Frame, Holder, build_site, current, for_vm, view_of

#: Distinct sets of sizes after which the pool's free blocks are given back.
SIZES_KEPT = 8

_distinct_sizes: set[Any] = set()
_distinct_lock = threading.Lock()


class Executable:
    """Runs one compiled graph. Calls from several threads are safe: each thread has a virtual machine of its own.

    `executable(args)` takes the graph's inputs as one list, which it empties (AOTAutograd's boxed convention), and returns the
    list of outputs. Raises what the kernels and ATen calls raise (IndexError for an index out of range).
    """

    def __init__(self, translation: Translation, executable: Any, record: GraphRecord):
        self._boxed_call = True  # an attribute of the instance: Dynamo's wrappers copy those only
        self.translation = translation
        self.record = record
        self._executable = executable
        self._module = executable.jit() if hasattr(executable, "jit") else executable
        self._threads = threading.local()
        self._sites = [build_site(site) for site in translation.sites]
        self._symbol_readers = [_symbol_reader(s) for s in translation.sources]
        self._symbol_count = len(translation.symbols)
        self._integer_positions = [
            i for i, s in enumerate(translation.sources) if s.symbol in set(translation.symbols)
        ]
        self._evaluate = _evaluator(translation)
        self._params = translation.params
        self._outputs = translation.outputs
        self._mutations = translation.mutations
        self._relaid = _inputs_read_by_layout(translation)
        self._input_strides: dict[int, Strided] = {}

    def _function(self) -> Any:
        function = getattr(self._threads, "function", None)
        if function is None:
            machine = relax.VirtualMachine(self._module, tvm.cpu())
            function = machine["main"]
            self._threads.machine = machine
            self._threads.function = function
        return function

    def __call__(self, args: list[Any]) -> list[Any]:
        inputs = [*args, *self.translation.constants]
        args.clear()
        values = [read(inputs) for read in self._symbol_readers]
        scalars = self._evaluate(values) if self._evaluate is not None else ()
        if self._symbol_count:
            _bound_memory(id(self), tuple(values))
        call_args: list[Any] = [values[i] for i in self._integer_positions]
        for param in self._params:
            if isinstance(param, TensorParam):
                tensor = inputs[param.index]
                prepared = for_vm(tensor, param.order)
                if prepared.data_ptr() != tensor.data_ptr() and not param.empty:
                    self.record.copies += 1
                call_args.append(prepared)
            elif isinstance(param, ScalarParam):
                call_args.append(torch.tensor(float(scalars[param.scalar.index]), dtype=torch.float64))
            elif isinstance(param, OpaqueParam):
                call_args.append(Holder(inputs[param.index]))
        results = self._run(call_args, scalars)
        del call_args
        self.record.runs += 1
        for mutation in self._mutations:
            value = self._output(mutation.source, inputs, results, scalars)
            with torch.no_grad():
                inputs[mutation.index].copy_(value)
        return [self._output(plan, inputs, results, scalars) for plan in self._outputs]

    def _run(self, call_args: list[Any], scalars: tuple[Any, ...]) -> list[Any]:
        frame = Frame(self._sites, scalars)
        previous, current.frame = current.frame, frame
        try:
            if torch.is_grad_enabled():
                with torch.no_grad():
                    returned = self._function()(*call_args)
            else:
                returned = self._function()(*call_args)
        except BaseException as error:
            if frame.error is not None:
                raise frame.error from None
            raise _translated(error) from None
        finally:
            current.frame = previous
        results = list(returned) if isinstance(returned, tvm_ffi.Array) else [returned]
        # Without a torch tensor among the arguments the machine answers with tensors of its own.
        return [torch.from_dlpack(r) if isinstance(r, tvm_ffi.Tensor) else r for r in results]

    def _output(self, plan: OutputPlan, inputs: list[Any], results: list[Any], scalars: tuple[Any, ...]) -> Any:
        if isinstance(plan, FromFunction):
            value = results[plan.index]
            if plan.opaque:
                return value.value if isinstance(value, Holder) else value
            if plan.view is None:
                return value
            if plan.relayout:
                return _relaid(value, plan.view, scalars)
            return view_of(value, plan.view, scalars)
        if isinstance(plan, FromInput):
            tensor = inputs[plan.index]
            if plan.view is None:
                return tensor
            return view_of(tensor, plan.view, scalars, tensor.storage_offset())
        if isinstance(plan, FromScalar):
            return scalars[plan.scalar.index]
        assert isinstance(plan, FromConstant)
        return plan.value


def _translated(error: BaseException) -> BaseException:
    """TVM's exception without its C++ frames: the type that the kernel's assert names, and the message."""
    message = str(error).strip().splitlines()
    text = message[-1] if message else type(error).__name__
    for kind in (IndexError, RuntimeError):
        if isinstance(error, kind):
            return kind(text)
    return error


def _bound_memory(executable: int, sizes: tuple[Any, ...]) -> None:
    """See Note [Memory and sizes]."""
    key = (executable, sizes)
    if key in _distinct_sizes:
        return
    with _distinct_lock:
        if len(_distinct_sizes) >= SIZES_KEPT:
            _distinct_sizes.clear()
            tvm_ffi.get_global_func("vm.builtin.memory_manager.clear")()
        _distinct_sizes.add(key)


def _symbol_reader(source: SymbolSource) -> Callable[[Sequence[Any]], Any]:
    index, dim, solve = source.index, source.dim, source.solve
    if dim is None:
        read: Callable[[Sequence[Any]], Any] = lambda inputs: inputs[index]  # noqa: E731  # one of three readers
    elif source.stride:
        read = lambda inputs: inputs[index].stride(dim)  # noqa: E731
    else:
        read = lambda inputs: inputs[index].shape[dim]  # noqa: E731
    if solve is None:
        return read
    return lambda inputs: solve(read(inputs))


def _evaluator(translation: Translation) -> Callable[[list[Any]], tuple[Any, ...]] | None:
    """One Python function for all symbolic numbers of the graph."""
    if not translation.scalars:
        return None
    names = [str(s.symbol) for s in translation.sources]
    body = ", ".join(torch_api.python_source(e) for e in translation.scalars)
    source = f"lambda {', '.join(names)}: ({body},)"
    function = eval(source, {"math": math, "torch": torch})  # printed from sympy expressions of sizes
    return lambda values: function(*values)


def _inputs_read_by_layout(translation: Translation) -> frozenset[int]:
    return frozenset(p.index for p in translation.outputs if isinstance(p, FromInput) and p.view is not None)


def _relaid(value: torch.Tensor, view: Strided, scalars: tuple[Any, ...]) -> torch.Tensor:
    """A copy of a row-major tensor in the layout of `view`; dims of stride 0 keep one element."""
    size = [s if not isinstance(s, ScalarRef) else scalars[s.index] for s in view.size]
    stride = [s if not isinstance(s, ScalarRef) else scalars[s.index] for s in view.stride]
    narrowed = value
    for dim, step in enumerate(stride):
        if step == 0 and size[dim] > 1:
            narrowed = narrowed.narrow(dim, 0, 1)
    target = torch.empty_strided(narrowed.shape, stride, dtype=value.dtype)
    target.copy_(narrowed)
    return target.as_strided(size, stride)
