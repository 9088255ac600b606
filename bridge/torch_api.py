# SPDX-License-Identifier: Apache-2.0
"""The only file that imports private torch names.

AOTAutograd is not a stable public interface. Everything of it that the bridge stands on goes through this module, and
each name has a probe that *exercises* it (`probe_all`), so that a torch release that moves or changes one is found by
`relaxgrad doctor` and not by a wrong gradient. Private names are imported when used: a missing one fails its probe and
raises one clear `UserError` at use, and never stops this module from being imported. Written against torch 2.11-2.14.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from . import recurrent, scoped
from .errors import UserError
from .torch_probes import Probe, run_probe

if TYPE_CHECKING:
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OpOverload as OpOverload
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

SUPPORTED_TORCH = "2.11 to 2.14"

Decompositions = Mapping[Any, Callable[..., Any]]
Compiler = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Name:
    """A private name of torch."""

    path: str  # `module`, or `module:attribute`
    used_for: str


# Every private name that the bridge stands on. Each has a probe of the same key in torch_probes.py.
NAMES: dict[str, Name] = {
    "make_boxed_func": Name("functorch.compile:make_boxed_func", "the boxed calling convention"),
    "aot_autograd": Name("torch._dynamo.backends.common:aot_autograd", "the torch.compile backend"),
    "partition": Name("functorch.compile:min_cut_rematerialization_partition", "the forward/backward split"),
    "tracing_context": Name("torch._guards:TracingContext", "what AOTAutograd knows of a graph"),
    "disable_modes": Name("torch.utils._python_dispatch:_disable_current_modes", "real tensors in a compiler"),
    "dynamo_config": Name("torch._dynamo:config", "Dynamo's options"),
    "functorch_config": Name("torch._functorch:config", "AOTAutograd's options, for retain_graph"),
    "counters": Name("torch._dynamo.utils:counters", "counting graphs and graph breaks"),
    "compile_seconds": Name("torch._dynamo.utils:compilation_time_metrics", "the time inside of TorchInductor"),
    "inductor": Name("torch._inductor.compile_fx", "the time inside of TorchInductor"),
    "mark_dynamic": Name("torch._dynamo:maybe_mark_dynamic", "a symbolic batch size"),
    "explain": Name("torch._dynamo:explain", "graph breaks with their lines, and guards"),
    "export_joint": Name("torch._functorch.aot_autograd:aot_export_joint_with_descriptors", "the joint graph"),
    "descriptors": Name("torch._functorch._aot_autograd.descriptors", "the meaning of graph inputs and outputs"),
    "graph_capture": Name("torch._functorch._aot_autograd.graph_capture", "source lines in the joint graph"),
    "compiling": Name("torch.compiler:_is_compiling_flag", "models that branch on data unless they are compiled"),
    "core_aten": Name("torch._decomp:core_aten_decompositions", "the core ATen decompositions"),
    "get_decompositions": Name("torch._decomp:get_decompositions", "decompositions that core ATen lacks"),
    "decompositions": Name("torch._decomp.decompositions", "recurrent layers with dropout between them"),
    "symbolic_shapes": Name("torch.fx.experimental.symbolic_shapes", "symbolic sizes"),
    "symbols": Name("torch.utils._sympy.symbol", "sizes that depend on data"),
    "printer": Name("torch.utils._sympy.printers:PythonPrinter", "sizes at run time"),
    "fake_tensor": Name("torch._subclasses.fake_tensor", "tracing without data"),
    "dynamo_exc": Name("torch._dynamo.exc", "clear capture errors"),
    "backend_wrapper": Name(
        "torch._dynamo.repro.after_dynamo:WrapBackendDebug", "recurrent layers under plain torch.compile"
    ),
    "ops": Name("torch._ops", "the identity of an op"),
    "dispatch_mode": Name("torch.utils._python_dispatch", "the float64 reference run"),
    "pytree": Name("torch.utils._pytree", "nested inputs and outputs"),
    "prims_common": Name("torch._prims_common", "the strides that eager's kernels give"),
    "proxy_tensor": Name("torch.fx.experimental.proxy_tensor", "layouts computed while a graph is traced"),
}


def private(key: str) -> Any:
    """The module or object behind a key of NAMES. Raises UserError when this torch does not have it."""
    name = NAMES[key]
    module, _, attribute = name.path.partition(":")
    try:
        found = importlib.import_module(module)
        return getattr(found, attribute) if attribute else found
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"torch {torch.__version__} has no {name.path.replace(':', '.')}, which relaxgrad needs for "
            f"{name.used_for} ({error}); use torch {SUPPORTED_TORCH}, and see `relaxgrad doctor`"
        ) from error


_CLASSES = {
    "FakeTensor": "fake_tensor",
    "FakeTensorMode": "fake_tensor",
    "OpOverload": "ops",
    "HigherOrderOperator": "ops",
    "TorchDispatchMode": "dispatch_mode",
}


def __getattr__(name: str) -> Any:
    """The private classes in _CLASSES, looked up when first asked for."""
    if name in _CLASSES:
        return getattr(private(_CLASSES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ---------------------------------------------------------------------------------------------------------------------
# The torch.compile path


def make_boxed_func(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function(*args)` as the boxed form that AOTAutograd prefers: one list argument that the callee may empty."""
    boxed: Callable[..., Any] = private("make_boxed_func")(function)
    return boxed


def aot_backend(
    fw_compiler: Compiler,
    bw_compiler: Compiler,
    inference_compiler: Compiler,
    decompositions: Decompositions,
    at_once: bool = False,
    **kwargs: Any,
) -> Callable[..., Any]:
    """A torch.compile backend over AOTAutograd: `(gm, example_inputs) -> callable`.

    Min-cut partitioner; input mutations stay in the graph as `copy_`; compilers get `(gm, fake_inputs)` and may return
    a boxed callable (`make_boxed_func`, or `_boxed_call = True`). `kwargs` go on to torch's `aot_autograd`.
    `at_once`: the backward compiler is called after the forward one, not by the first backward pass (2.11: it is).

    A FakeTensorMode is active while the forward compiler runs and not while a lazily compiled backward does: a compiler
    that makes real tensors does so under `real_tensors()`.

    Note [Donated buffers]
    AOTAutograd lets the backward graph reuse saved activations unless `donated_buffer` is off, and refuses
    `retain_graph=True` then. Turning the option off while compiling stops the donation, yet the *run-time* check reads
    the global option again and compares the list of donated buffers, `None` when it was never collected, with `[]`:
    `retain_graph=True` would still raise. So the compilers also put the empty list in the graph's own metadata. A
    global option that the user sets for other backends stays untouched.
    """

    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        aot_autograd = private("aot_autograd")
        compiler = aot_autograd(
            fw_compiler=_nothing_donated(fw_compiler),
            bw_compiler=_nothing_donated(bw_compiler),
            inference_compiler=inference_compiler,
            decompositions=dict(decompositions),
            **{"partition_fn": partition, "keep_inference_input_mutations": True, **kwargs},
        )
        with (
            functorch_config_patch(donated_buffer=False, force_non_lazy_backward_lowering=at_once),
            rnn_decompositions(),
        ):
            compiled: Callable[..., Any] = compiler(gm, example_inputs)
        return compiled

    return backend


def partition(joint: torch.fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> tuple[Any, Any]:
    """The min-cut split of a joint graph into (forward, backward), as `aot_backend` makes it."""
    forward, backward = private("partition")(joint, inputs, **kwargs)
    return forward, backward


def _nothing_donated(compiler: Compiler) -> Compiler:
    """See Note [Donated buffers]."""

    @functools.wraps(compiler)
    def wrapper(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        context = tracing_context()
        metadata = getattr(context, "fw_metadata", None)
        if metadata is not None:
            metadata.bw_donated_idxs = []
        return compiler(gm, example_inputs)

    return wrapper


def tracing_context() -> Any | None:
    """AOTAutograd's context of the compilation in progress, or None outside one."""
    return private("tracing_context").try_get()


def tracing_context_fake_mode() -> FakeTensorMode | None:
    """The fake mode (and through it the symbolic sizes) of the compilation in progress, or None outside one."""
    context = tracing_context()
    return None if context is None else context.fake_mode


@contextlib.contextmanager
def real_tensors() -> Iterator[None]:
    """Suspends the fake mode (and any other dispatch mode) that is active inside a compiler call."""
    suspend = private("disable_modes")
    with suspend():
        yield


def input_sources(gm: torch.fx.GraphModule) -> list[str | None]:
    """For each placeholder of a Dynamo graph (not AOTAutograd's), the access path by which Dynamo reached it.

    As `L['self']._modules['fc']._parameters['weight']`; None where Dynamo says none.
    """
    found: list[str | None] = []
    for node in gm.graph.find_nodes(op="placeholder"):
        name = getattr(getattr(node, "_dynamo_source", None), "name", None)
        name = name() if callable(name) else name  # a method up to torch 2.10, an attribute since
        found.append(name if isinstance(name, str) and name else None)
    return found


def input_requires_grad() -> list[bool] | None:
    """For each flat input of the compilation in progress, whether it needs a gradient; None outside one."""
    info = getattr(getattr(tracing_context(), "fw_metadata", None), "input_info", None)
    return None if info is None else [bool(i.requires_grad) for i in info]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps torch's own loggers from printing tracebacks of what is reported as an exception anyway."""
    loggers = [logging.getLogger(name) for name in ("torch._subclasses.fake_tensor", "torch._dynamo")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def dynamo_config_patch(**options: Any) -> Any:
    """Context manager and decorator: `torch._dynamo.config` options for the time being, as `allow_rnn=True`."""
    return private("dynamo_config").patch(**options)


def numpy_draws_as_in_eager() -> Any:
    """Context manager: Dynamo leaves `numpy.random` to numpy, where it would draw from torch's generator instead."""
    return dynamo_config_patch(use_numpy_random_stream=True)


def functorch_config_patch(**options: Any) -> Any:
    """Context manager and decorator: `torch._functorch.config` options for the time being."""
    return private("functorch_config").patch(**options)


def dynamo_graphs() -> int:
    """Graphs that Dynamo has handed to a backend since its counters were cleared."""
    return dynamo_counters().get("stats", {}).get("unique_graphs", 0)


def dynamo_counters() -> dict[str, dict[str, int]]:
    """A copy of Dynamo's counters: `["graph_break"]` has each reason with its count, `["frames"]`, `["stats"]`, ..."""
    return {group: dict(counts) for group, counts in private("counters").items()}


def explain(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[int, list[tuple[str, list[tuple[str, int, str]]]], int]:
    """Traces one call, which runs in eager: (graphs, reason and frames (file, line, code) of each break, guards)."""
    found = private("explain")(function)(*args, **kwargs)
    frames = [[(f.filename, f.lineno or 0, f.line or "") for f in b.user_stack or ()] for b in found.break_reasons]
    reasons = (str(b.reason).strip().splitlines()[0] for b in found.break_reasons)
    return found.graph_count, list(zip(reasons, frames, strict=True)), len(found.out_guards or ())


def mark_dynamic(tensor: torch.Tensor, dim: int) -> None:
    """Has the next compilation make one size of a tensor symbolic, unless the model's code needs its value."""
    private("mark_dynamic")(tensor, dim)


def dynamo_clear_counters() -> None:
    """Sets Dynamo's counters to zero."""
    private("counters").clear()


def load_inductor(draws_as_eager: bool = False) -> None:
    """Imports TorchInductor, which torch does at the first compilation, and has it draw random numbers with eager's
    generator, or (its default) with a faster one of its own."""
    private("inductor").config.fallback_random = draws_as_eager


def compile_seconds() -> dict[str, float]:
    """Wall time by what Dynamo and its backends time of a compilation, since the process began; parts are in wholes.

    `["compile_fx_inner"]` is what TorchInductor takes for its own part: from AOTAutograd's graphs to loaded code.
    """
    return {part: sum(times) for part, times in private("compile_seconds").items()}


# ---------------------------------------------------------------------------------------------------------------------
# The joint graph of a live module


def export_joint(
    stack: contextlib.ExitStack,
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    decompositions: Decompositions,
) -> Any:
    """`aot_export_joint_with_descriptors` (a JointWithDescriptors; `.graph_module` is the graph).

    `args` may be FakeTensors of a mode with symbolic sizes: the graph is then symbolic. Input mutations are outputs.
    """
    export = private("export_joint")
    with functorch_config_patch(donated_buffer=False), rnn_decompositions(), _stack_traces(), _compiling():
        return export(stack, module, args, kwargs, decompositions=dict(decompositions))


@contextlib.contextmanager
def _stack_traces() -> Iterator[None]:
    """Makes AOTAutograd note the user's stack on what it traces from a live module; Dynamo's nodes carry it already."""
    module = private("graph_capture")
    with scoped.replaced(module, make_fx=lambda make_fx: functools.partial(make_fx, record_stack_traces=True)):
        yield


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    """Makes `torch.compiler.is_compiling()` true, as it is under torch.compile.

    Models ask it before they branch on the values of a mask (transformers does), and could not be traced without.
    """
    private("compiling")
    with scoped.held(torch.compiler, NAMES["compiling"].path.partition(":")[2], True):
        yield


def descriptors() -> Any:
    """The module with AOTAutograd's typed descriptors: `ParamAOTInput`, `GradAOTOutput`, ..."""
    return private("descriptors")


# ---------------------------------------------------------------------------------------------------------------------
# Decompositions


@functools.cache
def _core_aten() -> dict[Any, Callable[..., Any]]:
    # Reading the table makes torch look at every registered op: once in a process is enough.
    return dict(private("core_aten")().items())


def core_aten_decompositions() -> dict[Any, Callable[..., Any]]:
    """A fresh copy of torch's table from OpOverload to its decomposition into core ATen."""
    return dict(_core_aten())


def get_decompositions(ops: Iterable[Any]) -> dict[Any, Callable[..., Any]]:
    """The entries of torch's whole registry for these overloads or packets; those without one are left out."""
    table: dict[Any, Callable[..., Any]] = private("get_decompositions")(list(ops))
    return table


def rnn_decompositions() -> contextlib.AbstractContextManager[None]:
    """Makes AOTAutograd trace recurrent layers as they train, for the time being: see recurrent.py."""
    return recurrent.decompositions(private("decompositions"))


def trace_recurrent_layers(backend: Any) -> None:
    """Has Dynamo trace recurrent layers for this backend and no other: see recurrent.py.

    Where this torch has other options or another wrapper nothing happens: the layers break the graph, the probe fails.
    """
    with contextlib.suppress(UserError, AttributeError, KeyError):
        recurrent.trace(backend, private("backend_wrapper"), private("dynamo_config")._config["allow_rnn"])


# ---------------------------------------------------------------------------------------------------------------------
# Symbolic sizes


def packet(name: str) -> Any | None:
    """The op called `namespace.op`, of all overloads, or None where this torch has none."""
    namespace, op = name.split(".")
    return getattr(getattr(torch.ops, namespace), op, None)


def is_symint(x: object) -> bool:
    """Whether `x` is a SymInt, SymFloat or SymBool, whatever it stands for."""
    return isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool)


def expr_of(x: Any) -> Any:
    """The sympy expression of a symbolic number; `x` itself when it is a plain number."""
    return x.node.expr if is_symint(x) else x


def hint_of(x: Any) -> Any:
    """The value that a symbolic number had in the example inputs; None when it depends on data."""
    return x.node.hint if is_symint(x) else x


def is_nested_int(x: object) -> bool:
    """Whether `x` is the ragged size of a jagged nested tensor: a number that is equal to itself and no int."""
    return isinstance(x, torch.SymInt) and x.node.is_nested_int()


def hints_of(numbers: Sequence[Any]) -> list[Any]:
    """`hint_of` each."""
    return [hint_of(n) for n in numbers]


def elementwise_strides(*tensors: torch.Tensor) -> tuple[Any, ...]:
    """The strides that TensorIterator gives the result of an element-wise op on `tensors`, all of one shape."""
    strides: tuple[Any, ...] = private("prims_common").compute_elementwise_output_strides(*tensors)
    return strides


def suggested_format(tensor: torch.Tensor) -> torch.memory_format:
    """`Tensor.suggest_memory_format` of ATen: channels_last where the strides are like it, otherwise contiguous."""
    suggested: torch.memory_format = private("prims_common").suggest_memory_format(tensor)
    return suggested


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Ops run in here on FakeTensors leave no nodes in the graph that is being traced."""
    with private("proxy_tensor").disable_proxy_modes_tracing():
        yield


def has_symbols(x: Any) -> bool:
    """Whether a value (number, tensor, or sequence of them) has a size, stride or offset with a free symbol."""
    if is_symint(x):
        return bool(getattr(expr_of(x), "free_symbols", ()))
    if isinstance(x, torch.Tensor):
        if x.layout is not torch.strided:
            return any(has_symbols(size) for size in x.shape)
        return any(has_symbols(n) for n in (*x.shape, *x.stride(), x.storage_offset()))
    if isinstance(x, list | tuple):
        return any(has_symbols(item) for item in x)
    return False


def is_unbacked(symbol: Any) -> bool:
    """Whether a sympy symbol stands for a number that is known only while the graph runs (as from `.item()`)."""
    symbols = private("symbols")
    unbacked = (symbols.SymT.UNBACKED_INT, symbols.SymT.UNBACKED_FLOAT)
    return bool(symbols.symbol_is_type(symbol, unbacked))


def symbol_bounds(number: Any, symbol: Any) -> str:
    """What tracing knows of the values that a symbol of a symbolic number may take, as text."""
    return str(number.node.shape_env.var_to_range.get(symbol))


def guards_of(gm: torch.fx.GraphModule) -> int:
    """How many facts about symbolic sizes the tracing of a graph stands on so far; 0 where all sizes are numbers.

    Asking a symbolic number whether something holds of it adds a fact, of which Dynamo makes a guard.
    """
    env = getattr(fake_mode_of(gm), "shape_env", None)
    return 0 if env is None else len(env.guards) + len(env.replacements)


def python_source(expr: Any) -> str:
    """A sympy expression over sizes as Python source with `math` in scope; symbols keep their names."""
    return str(private("printer")().doprint(expr))


def same_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors (fake ones as well) lie in the same memory."""
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)


def symbolic_fake_mode() -> FakeTensorMode:
    """A new fake mode with symbolic sizes; real tensors become fake ones with `mode.from_tensor`."""
    # A number read off a tensor is an error, as it is a graph break under torch.compile; a shape may depend on data.
    shape_env = private("symbolic_shapes").ShapeEnv(allow_scalar_outputs=False)
    mode: FakeTensorMode = private("fake_tensor").FakeTensorMode(shape_env=shape_env, allow_non_fake_inputs=True)
    return mode


def fake_mode_of(module: torch.fx.GraphModule) -> Any:
    """The mode of the FakeTensors in a graph's metadata; a context that changes nothing where it has none."""
    fake_class = private("fake_tensor").FakeTensor
    for node in module.graph.nodes:
        for leaf in private("pytree").tree_leaves(node.meta.get("val")):
            if isinstance(leaf, fake_class):
                return leaf.fake_mode
    return contextlib.nullcontext()


def propagate_fakes(
    module: torch.fx.GraphModule, inputs: Sequence[Any], check: Callable[[torch.fx.Node, Any], None]
) -> None:
    """Gives every node of a graph the FakeTensor (or number) of its result as `meta["val"]`; computes nothing.

    `check` gets each node with that, before the next one. Raises what it raises, what the ops raise for arguments that
    they do not take, and an error for an op without a rule for its shape: torch would run such a one on zeros.
    """
    mode: FakeTensorMode = private("fake_tensor").FakeTensorMode(
        allow_non_fake_inputs=True, allow_fallback_kernels=False
    )

    class Propagate(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            result = super().run_node(n)
            if n.op == "get_attr" and isinstance(result, torch.Tensor):
                result = mode.from_tensor(result)
            n.meta["val"] = result
            check(n, result)
            return result

    fakes = [mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in inputs]
    with mode, torch.no_grad():
        Propagate(module).run(*fakes)


def fake_tensor(mode: FakeTensorMode, tensor: torch.Tensor, dynamic: bool) -> torch.Tensor:
    """`tensor` as a FakeTensor of `mode`; `dynamic` puts a symbol for every size above 1, the same for equal sizes."""
    shapes = private("symbolic_shapes")
    kind = shapes.DimDynamic.DUCK if dynamic else shapes.DimDynamic.STATIC
    context = shapes.StatelessSymbolicContext(dynamic_sizes=[kind] * tensor.dim())
    return mode.from_tensor(tensor, symbolic_context=context)


def data_dependent_errors() -> tuple[type[BaseException], ...]:
    """The exceptions by which tracing says that control flow or a shape depends on data."""
    fake = private("fake_tensor")
    guard = private("symbolic_shapes").GuardOnDataDependentSymNode
    return fake.DataDependentOutputException, fake.DynamicOutputShapeException, guard


def root_cause(error: BaseException) -> BaseException:
    """What Dynamo wrapped in exceptions of its own; any other exception as it is."""
    while isinstance(error, dynamo_errors()):
        inner = getattr(error, "inner_exception", None) or error.__cause__ or error.__context__
        if inner is None:
            break
        error = inner
    return error


def dynamo_errors() -> type[BaseException]:
    """The base class of what Dynamo raises."""
    base: type[BaseException] = private("dynamo_exc").TorchDynamoException
    return base


# ---------------------------------------------------------------------------------------------------------------------
# PyTorch's own test data


def opinfo_database() -> list[Any]:
    """PyTorch's operator database: one OpInfo an entry, with sample inputs. Takes three seconds to import.

    Not in NAMES, since no user's training stands on it: `relaxgrad doctor` must pass without the packages that torch's
    tests need. Raises UserError where one of them (expecttest) is missing.
    """
    try:
        module = importlib.import_module(_OPINFO_DATABASE)
    except ImportError as error:
        what = f"torch's operator database cannot be imported ({error})"
        raise UserError(f'{what}; pip install "relaxgrad[dev]"') from error
    for name, part in list(sys.modules.items()):
        # Random ops are wrapped to draw with a seed of their own, which a compiled graph would not set: callers do.
        if name.startswith(_OPINFO_PACKAGE) and hasattr(part, "wrapper_set_seed"):
            part.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)  # type: ignore[attr-defined]  # a module
    entries: list[Any] = module.op_db
    return entries


_OPINFO_PACKAGE = "torch.testing._internal."
_OPINFO_DATABASE = "torch.testing._internal.common_methods_invocations"


# ---------------------------------------------------------------------------------------------------------------------
# Probes


def probe_all() -> list[Probe]:
    """Exercises every private name in the order of NAMES (about three seconds on one thread). Raises nothing.

    What this process compiled before is forgotten, and so is what the probes compiled.
    """
    torch.compiler.reset()
    try:
        with torch.random.fork_rng(devices=[]), quiet():
            return [run_probe(sys.modules[__name__], key) for key in NAMES]
    finally:
        torch.compiler.reset()
