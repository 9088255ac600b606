# SPDX-License-Identifier: Apache-2.0
"""A compiled graph as a function from tensors to tensors with eager's strides, aliasing and mutation.

Note [Memory and sizes]
TVM's pooled allocator keeps a block of every size that it ever served. A graph with symbolic sizes that sees many
distinct sizes would grow without end; so a count of distinct sizes is kept, and past a bound the pool's free blocks are
given back.
"""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
import tvm_ffi

from .. import rng
from ..errors import RelaxgradError
from ..plan import CallingPlan, InPlace, OpaqueParam, Param, ScalarParam, SymbolSource, TensorParam
from ..schemas import GraphRecord
from .compiled import Compiled
from .extern_calls import CallContext, build_call, current, for_vm, memory_order
from .plans import OpaqueObject, Scalars, output_reader
from .virtual_machine import VirtualMachine

#: Distinct sets of sizes after which the pool's free blocks are given back.
SIZES_KEPT = 8

_distinct_sizes: set[Any] = set()
_distinct_lock = threading.Lock()


class Executable:
    """Runs one compiled graph. Calls from several threads are safe: each thread has a virtual machine of its own.

    `executable(args)` takes the graph's inputs as one list, which it empties (AOTAutograd's boxed convention), and
    returns the list of outputs. Raises what the kernels and ATen calls raise (IndexError for an index out of range).
    """

    live: ClassVar[weakref.WeakSet[Executable]] = weakref.WeakSet()  # for the profiler

    def __init__(self, compiled: Compiled, constants: Sequence[torch.Tensor], record: GraphRecord):
        plan = compiled.plan
        self._boxed_call = True  # an attribute of the instance: Dynamo's wrappers copy those only
        self.plan = plan
        self.record = record
        self.kernels = compiled.kernels
        self._compiled = compiled
        self._constants = tuple(constants)
        self._threads = threading.local()
        self._extern_calls = [build_call(call) for call in plan.extern_calls]
        self._symbol_readers = [_symbol_reader(s) for s in plan.sources]
        self._size_positions = [i for i, s in enumerate(plan.sources) if s.argument]
        self._evaluate = _evaluator(plan)
        whole = plan.input_count + plan.constant_count
        self._feeds = [_feed(param, whole, compiled.device.name) for param in plan.params]
        first = len(self._size_positions)  # of the parameters that are no sizes
        orders = {first + k: p.order for k, p in enumerate(plan.params) if isinstance(p, TensorParam)}
        sources = [(m.index, m.source) for m in plan.mutations]
        self._writes = [(i, output_reader(source)) for i, source in sources if not isinstance(source, InPlace)]
        self._sizes: list[tuple[int, int]] | None = None  # (argument, bytes) of the tensors, as the last call had them
        self._in_place = [
            (i, source.argument, orders[source.argument]) for i, source in sources if isinstance(source, InPlace)
        ]
        self._outputs = [output_reader(output) for output in plan.outputs]
        self._result_numbers = range(plan.result_count)
        compiled.device.configure()
        self.live.add(self)

    def _machine(self) -> VirtualMachine:
        machine: VirtualMachine | None = getattr(self._threads, "machine", None)
        if machine is None:
            self._compiled.device.configure_thread()
            machine = self._threads.machine = VirtualMachine(self._compiled.library, self._compiled.device)
        return machine

    def instrument(self, hook: Callable[..., int] | None) -> None:
        """Has this thread's machine call `hook(function, name, before, returned, *args)` at each kernel, or nothing."""
        self._machine().instrument(hook)

    def __call__(self, args: list[Any]) -> list[Any]:
        inputs = [*args, *self._constants]
        args.clear()
        values = [read(inputs) for read in self._symbol_readers]
        scalars = self._evaluate(values) if self._evaluate is not None else ()
        call_args: list[Any] = [values[i] for i in self._size_positions]
        if call_args:
            _bound_memory(id(self), tuple(call_args))
        for index in self.plan.split_inputs:
            inputs += for_vm(inputs[index], None).unbind()
        record = self.record
        for feed in self._feeds:
            call_args.append(feed(inputs, scalars, record))
        if self._in_place:
            self._keep_apart(call_args)
        results = self._run(call_args, scalars)
        if self._in_place:
            self._written(inputs, call_args)
        del call_args
        record.runs += 1
        for index, read_value in self._writes:
            with torch.no_grad():
                inputs[index].copy_(read_value(inputs, results, scalars))
        return [read(inputs, results, scalars) for read in self._outputs]

    def _keep_apart(self, call_args: list[Any]) -> None:
        """Has an input that the function writes enter as a copy where another argument has memory of it.

        AOTAutograd takes care of inputs that overlap when it traces; it guards against no later overlap.
        """
        sizes = self._sizes
        if sizes is None or self._size_positions:
            tensors = ((number, a) for number, a in enumerate(call_args) if isinstance(a, torch.Tensor))
            sizes = self._sizes = [(number, tensor.nbytes) for number, tensor in tensors]
        spans = sorted((call_args[number].data_ptr(), size, number) for number, size in sizes)
        if not any(start + size > following for (start, size, _), (following, _, _) in itertools.pairwise(spans)):
            return
        for _, argument, _ in self._in_place:
            first, length = next((start, size) for start, size, number in spans if number == argument)
            others = (span for span in spans if span[2] != argument)
            if any(start < first + length and first < start + size for start, size, _ in others):
                call_args[argument] = call_args[argument].detach().clone()

    def _written(self, inputs: list[Any], call_args: list[Any]) -> None:
        """Tells autograd of the inputs that the function wrote in place, as it learns of a `copy_`.

        An input that could not enter the function as it lay in memory is copied from what entered instead; for one that
        may not be written (a tensor of inference mode, outside of it) the copy raises what it raises in eager.
        """
        written = []
        inferring = torch.is_inference_mode_enabled()
        for index, argument, order in self._in_place:
            target, given = inputs[index], call_args[argument]
            is_written = given is target or given.data_ptr() == target.data_ptr()
            if is_written and (inferring or not target.is_inference()):
                written.append(target)
            else:
                with torch.no_grad():
                    target.permute(order).copy_(given)
        torch.autograd.graph.increment_version(written)

    def _run(self, call_args: list[Any], scalars: tuple[Any, ...]) -> list[Any]:
        context = CallContext(self._extern_calls, scalars)
        machine = self._machine()
        main = machine.main
        previous, current.context = current.context, context
        try:
            if torch.is_grad_enabled():
                with torch.no_grad():
                    returned = main(*call_args)
            else:
                returned = main(*call_args)
        except BaseException as error:
            rng.release()
            if context.error is not None:
                raise context.error from None
            raise self._not_an_int(call_args) or _translated(error) from None
        finally:
            current.context = previous
        results = [_item(returned, i) for i in self._result_numbers]
        del returned
        machine.release()
        # Without a torch tensor among the arguments the machine answers with tensors of its own.
        return [torch.from_dlpack(r) if isinstance(r, tvm_ffi.Tensor) else r for r in results]

    def _not_an_int(self, call_args: Sequence[Any]) -> RelaxgradError | None:
        """The exception for a size that the machine refused because it is no int; None where all are ints."""
        for position, value in zip(self._size_positions, call_args, strict=False):
            if not isinstance(value, int):
                source = self.plan.sources[position]
                return RelaxgradError(
                    f"input {source.index} of a compiled graph gives size {source.symbol} the value {value!r} "
                    f"({type(value).__name__}), and the graph was compiled for an int: "
                    "keep this call out of the compiled graph, with torch.compiler.disable"
                )
        return None


#: Item of a TVM array: the array's own `[]` takes five times as long.
_item = tvm_ffi.get_global_func("ffi.ArrayGetItem")


def _feed(param: Param, whole: int, device: str) -> Callable[[list[Any], Scalars, GraphRecord], Any]:
    """The function that makes one argument of `main`. Inputs from number `whole` on are slices of others."""
    if isinstance(param, ScalarParam):
        scalar = param.scalar.index
        return lambda inputs, scalars, record: torch.tensor(float(scalars[scalar]), dtype=torch.float64, device=device)
    index = param.index
    if isinstance(param, OpaqueParam):
        return lambda inputs, scalars, record: OpaqueObject(inputs[index])
    if index >= whole:
        return lambda inputs, scalars, record: inputs[index]
    order, empty = memory_order(param.order), param.empty

    def feed(inputs: list[Any], scalars: Scalars, record: GraphRecord) -> torch.Tensor:
        tensor = inputs[index]
        prepared = for_vm(tensor, order)
        if prepared is not tensor and not empty and prepared.data_ptr() != tensor.data_ptr():
            record.copies += 1
        return prepared

    return feed


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
    index, dim, scale, shift = source.index, source.dim, source.scale, source.shift
    if dim is None:
        read: Callable[[Sequence[Any]], Any] = lambda inputs: inputs[index]  # noqa: E731  # one of three readers
    elif source.stride:
        read = lambda inputs: inputs[index].stride(dim)  # noqa: E731
    else:
        read = lambda inputs: inputs[index].shape[dim]  # noqa: E731
    if (scale, shift) == (1, 0):
        return read
    return lambda inputs: (read(inputs) - shift) // scale


def _evaluator(plan: CallingPlan) -> Callable[[list[Any]], tuple[Any, ...]] | None:
    """One Python function for all symbolic numbers of the graph."""
    if not plan.scalars:
        return None
    source = f"lambda {', '.join(s.symbol for s in plan.sources)}: ({', '.join(plan.scalars)},)"
    function = eval(source, {"math": math, "torch": torch})  # printed from sympy expressions of sizes
    return lambda values: function(*values)
