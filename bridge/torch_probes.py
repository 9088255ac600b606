# SPDX-License-Identifier: Apache-2.0
"""One probe for each private torch name: it *uses* the name as the bridge does, and raises when the outcome is another.

A probe takes torch_api as its argument, which alone imports private names, and returns in words what it saw. Its key is
the name's key in `torch_api.NAMES`.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from .errors import UserError


@dataclass(frozen=True)
class Probe:
    """What became of exercising one private name."""

    name: str
    used_for: str
    ok: bool
    detail: str  # what was seen, or the error


PROBES: dict[str, Callable[[Any], str]] = {}


def probe(key: str) -> Callable[[Callable[[Any], str]], Callable[[Any], str]]:
    """Registers the probe of the private name `key`."""

    def register(function: Callable[[Any], str]) -> Callable[[Any], str]:
        PROBES[key] = function
        return function

    return register


def run_probe(api: Any, key: str) -> Probe:
    """Runs one probe; whatever it raises is the finding."""
    path, used_for = api.NAMES[key].path.replace(":", "."), api.NAMES[key].used_for
    try:
        return Probe(path, used_for, True, PROBES[key](api))
    except Exception as error:  # a changed torch may raise anything
        cause: BaseException = error
        with contextlib.suppress(UserError):  # the names that root_cause needs may be the ones that are gone
            cause = api.root_cause(error)
        first = (str(cause).strip() or "no message").splitlines()[0]
        return Probe(path, used_for, False, f"{type(cause).__name__}: {first}")


def _expect(condition: object, what: str) -> None:
    if not condition:
        raise RuntimeError(f"unexpected: {what}")


@dataclass
class _Traced:
    """What a backend saw of sin(x * w).sum() compiled with both needing gradients."""

    loss: torch.Tensor = field(default_factory=lambda: torch.zeros(()))
    graphs: list[torch.fx.GraphModule] = field(default_factory=list)  # forward, then backward
    sources: list[str | None] = field(default_factory=list)
    requires_grad: list[bool] | None = None
    fake_mode: Any = None
    real: type | None = None  # of a tensor made under real_tensors() inside the compiler


def _trace(api: Any) -> _Traced:
    seen = _Traced()

    def compiler(gm: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        seen.graphs.append(gm)
        if len(seen.graphs) == 1:
            seen.requires_grad, seen.fake_mode = api.input_requires_grad(), api.tracing_context_fake_mode()
            with api.real_tensors():
                seen.real = type(torch.zeros(1))
        boxed: Callable[..., Any] = api.make_boxed_func(gm.forward)
        return boxed

    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        seen.sources = api.input_sources(gm)
        return api.aot_backend(compiler, compiler, compiler, {})(gm, example_inputs)

    torch.compiler.reset()
    seen.loss = torch.compile(lambda x, w: (x * w).sin().sum(), backend=backend)(*_inputs())
    _expect(len(seen.graphs) == 1, f"{len(seen.graphs)} forward graphs")
    return seen


def _inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)


def _joint(api: Any, module: torch.nn.Module, *args: torch.Tensor) -> torch.fx.Graph:
    with contextlib.ExitStack() as stack:
        graph: torch.fx.Graph = api.export_joint(stack, module, args, None, {}).graph_module.graph
    return graph


@probe("make_boxed_func")
def _make_boxed_func(api: Any) -> str:
    arguments = [1, 2]
    boxed = api.make_boxed_func(lambda a, b: a + b)
    _expect(boxed(arguments) == 3 and boxed._boxed_call, "a function that is not boxed")
    return "a list of arguments taken"


@probe("aot_autograd")
def _aot_autograd(api: Any) -> str:
    seen = _trace(api)
    seen.loss.backward()
    x, w = _inputs()
    _expect(len(seen.graphs) == 2, f"{len(seen.graphs)} graphs of a forward and a backward")
    _expect(torch.allclose(seen.loss, (x * w).sin().sum()), "another loss than eager's")
    _expect(seen.sources == ["L['x']", "L['w']"], f"access paths of the inputs {seen.sources}")
    return "forward and backward graph captured and run"


@probe("partition")
def _partition(api: Any) -> str:
    (output,) = _trace(api).graphs[0].graph.find_nodes(op="output")
    values = output.args[0]
    saved = len(values) - 1 if isinstance(values, list | tuple) else 0
    _expect(saved, "nothing saved for the backward")
    return f"{saved} values saved for the backward"


@probe("tracing_context")
def _tracing_context(api: Any) -> str:
    seen = _trace(api)
    _expect(seen.fake_mode is not None, "no fake mode while compiling")
    _expect(seen.requires_grad == [True, True], f"requires_grad {seen.requires_grad}")
    return "fake mode and input metadata"


@probe("disable_modes")
def _disable_modes(api: Any) -> str:
    _expect((made := _trace(api).real) is torch.Tensor, f"{made} made under real_tensors()")
    return "real tensors made inside a compiler call"


@probe("dynamo_config")
def _dynamo_config(api: Any) -> str:
    lstm = torch.nn.LSTM(2, 2)
    counts = []
    for traced in (False, True):
        torch.compiler.reset()
        api.dynamo_clear_counters()
        with api.dynamo_config_patch(allow_rnn=traced):
            torch.compile(lstm, backend="eager")(torch.ones(2, 1, 2))
        counts.append(api.dynamo_counters().get("stats", {}).get("unique_graphs", 0))
    _expect(counts == [0, 1], f"{counts} graphs of an LSTM without and with allow_rnn, not [0, 1]")
    return "recurrent layers traced when asked"


@probe("mark_dynamic")
def _mark_dynamic(api: Any) -> str:
    x = torch.ones(4, 3)
    api.mark_dynamic(x, 0)
    sizes: list[Any] = []

    def backend(gm: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        sizes.extend(node.meta["example_value"] for node in gm.graph.nodes if node.op == "placeholder")
        return gm.forward

    torch.compiler.reset()
    torch.compile(lambda x: x * 2, backend=backend)(x)
    _expect(any(isinstance(size, torch.SymInt) for size in sizes), "no symbolic size")
    return "the first size of a tensor symbolic when asked"


@probe("functorch_config")
def _functorch_config(api: Any) -> str:
    loss = _trace(api).loss
    loss.backward(retain_graph=True)
    loss.backward(retain_graph=True)
    return "a retained graph ran backward twice"


@probe("counters")
def _counters(api: Any) -> str:
    api.dynamo_clear_counters()
    _trace(api)
    count = api.dynamo_counters().get("stats", {}).get("unique_graphs", 0)
    _expect(count == 1, f"{count} graphs counted, not 1")
    return "graphs counted"


@probe("compile_seconds")
def _compile_seconds(api: Any) -> str:
    api.private("compile_seconds").clear()
    _trace(api)
    seconds = api.compile_seconds()
    _expect(sum(seconds.values()) > 0, f"no time of a compilation among {sorted(seconds)}")
    return f"a compilation timed in {len(seconds)} parts"


@probe("inductor")
def _inductor(api: Any) -> str:
    inductor = api.private("inductor")
    _expect(inductor.config.fallback_random in (True, False), "no option for eager's random numbers")
    source = inspect.getsource(inductor.compile_fx_inner)
    _expect("dynamo_timed(" in source and '"compile_fx_inner"' in source, "compile_fx_inner is not timed by its name")
    return "TorchInductor times its part, and can draw as eager does"


@probe("explain")
def _explain(api: Any) -> str:
    def splits(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        print(end="")  # no graph holds this
        return y.cos()

    graphs, breaks, _ = api.explain(splits, (torch.ones(2),), {})
    _expect(graphs == 2 and len(breaks) == 1, f"{graphs} graphs and {len(breaks)} breaks")
    _expect("print" in breaks[0][1][-1][2], f"a break at {breaks[0][1][-1:]}")
    return "a graph break with its line"


@probe("export_joint")
def _export_joint(api: Any) -> str:
    graph = _joint(api, torch.nn.Linear(2, 2), torch.ones(1, 2))
    products = [n for n in graph.nodes if str(n.target) in ("aten.mm.default", "aten.addmm.default")]
    _expect(len(products) == 2, f"{len(products)} matrix products in a linear layer's forward and backward, not 2")
    return f"joint graph of {len(graph.nodes)} nodes"


@probe("descriptors")
def _descriptors(api: Any) -> str:
    graph, d = _joint(api, torch.nn.Linear(2, 2), torch.ones(1, 2)), api.descriptors()
    found = [type(n.meta["desc"]) for n in graph.find_nodes(op="placeholder")]
    wanted = [d.ParamAOTInput, d.ParamAOTInput, d.PlainAOTInput, d.TangentAOTInput]
    _expect(found == wanted, f"inputs {[t.__name__ for t in found]}")
    (output,) = graph.find_nodes(op="output")
    gradients = [o.grad_of.target for o in output.meta["desc"] if isinstance(o, d.GradAOTOutput)]
    _expect(gradients == ["weight", "bias"], f"gradients of {gradients}")
    return "parameters, inputs, tangents and gradients told apart"


@probe("graph_capture")
def _graph_capture(api: Any) -> str:
    graph = _joint(api, torch.nn.Linear(2, 2), torch.ones(1, 2))
    traced = [n for n in graph.nodes if n.meta.get("stack_trace")]
    _expect(traced, "no node carries a stack")
    return f"{len(traced)} nodes carry a stack"


class _AsksFirst(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cos() if torch.compiler.is_compiling() else x.sin()


@probe("compiling")
def _compiling(api: Any) -> str:
    graph = _joint(api, _AsksFirst(), torch.ones(2))
    _expect(any(str(n.target) == "aten.cos.default" for n in graph.nodes), "a trace that does not say it compiles")
    _expect(not torch.compiler.is_compiling(), "is_compiling() after the trace")
    return "is_compiling() while tracing a module"


@probe("core_aten")
def _core_aten(api: Any) -> str:
    table = api.core_aten_decompositions()
    _expect(torch.ops.aten.silu.default in table, "no entry for silu")
    return f"{len(table)} entries"


@probe("get_decompositions")
def _get_decompositions(api: Any) -> str:
    op = torch.ops.aten._native_batch_norm_legit_functional.default
    _expect(op in api.get_decompositions([op]), f"no entry for {op}")
    return "batch norm in train mode"


@probe("decompositions")
def _decompositions(api: Any) -> str:
    graph = _joint(api, torch.nn.LSTM(2, 2, num_layers=2, dropout=0.5), torch.ones(3, 1, 2))
    ops = {str(n.target) for n in graph.nodes if n.op == "call_function"}
    _expect(any("dropout" in op for op in ops), "no dropout in a two-layer LSTM")
    _expect(not any("mkldnn" in op for op in ops), "an inference kernel in a training graph")
    return "two-layer LSTM with its dropout"


@probe("symbolic_shapes")
def _symbolic_shapes(api: Any) -> str:
    fake = api.fake_tensor(api.symbolic_fake_mode(), torch.ones(3, 5, 1), True)
    _expect(api.has_symbols(fake) and not api.has_symbols(torch.ones(2)), "no symbol in a dynamic size")
    _expect([api.hint_of(n) for n in fake.shape] == [3, 5, 1], f"hints of {fake.shape}")
    return f"sizes {', '.join(str(api.expr_of(n)) for n in fake.shape)}"


@probe("symbols")
def _symbols(api: Any) -> str:
    mode = api.symbolic_fake_mode()
    (size,) = api.fake_tensor(mode, torch.ones(3), True).shape
    _expect(not any(api.is_unbacked(s) for s in api.expr_of(size).free_symbols), "a size that depends on data")
    with mode:
        found = torch.ones(3).nonzero().shape[0]
    _expect(all(api.is_unbacked(s) for s in api.expr_of(found).free_symbols), f"{found} depends on data")
    return f"{size} known, {found} depends on data"


@probe("printer")
def _printer(api: Any) -> str:
    (size,) = api.fake_tensor(api.symbolic_fake_mode(), torch.ones(7), True).shape
    source = api.python_source(api.expr_of((size + 1) // 2))
    value = eval(source, {"math": math, str(api.expr_of(size)): 9})
    _expect(value == 5, f"{source} is {value} at 9, not 5")
    return source


def _branches(x: torch.Tensor) -> torch.Tensor:
    return x if x.sum() > 0 else -x


@probe("fake_tensor")
def _fake_tensor(api: Any) -> str:
    with api.FakeTensorMode():
        value = torch.ones(2, dtype=torch.int32)
        _expect(isinstance(value, api.FakeTensor), f"{type(value).__name__} under a fake mode")
        _expect(value.dtype == torch.int32 and value.device.type == "cpu", "another dtype or device")
        try:
            _branches(value)
        except api.data_dependent_errors() as error:
            return f"a tensor without data; a branch on it raises {type(error).__name__}"
    raise RuntimeError("unexpected: a branch on data that a fake tensor took")


@probe("dynamo_exc")
def _dynamo_exc(api: Any) -> str:
    try:
        torch.compile(_branches, backend="eager", fullgraph=True)(torch.ones(2))
    except api.dynamo_errors() as error:
        return f"a branch on data raises {type(error).__name__}"
    raise RuntimeError("unexpected: Dynamo captured a branch on data as one graph")


@probe("ops")
def _ops(api: Any) -> str:
    _expect(isinstance(torch.ops.aten.add.Tensor, api.OpOverload), "aten.add.Tensor is no OpOverload")
    _expect(isinstance(torch.ops.higher_order.cond, api.HigherOrderOperator), "cond is no HigherOrderOperator")
    return "overloads and higher-order ops told apart"


@probe("dispatch_mode")
def _dispatch_mode(api: Any) -> str:
    seen: list[str] = []

    class Listener(api.TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Listener():
        torch.ones(2) + 1
    _expect("aten.add.Tensor" in seen, f"{seen} seen instead of aten.add.Tensor")
    return "sees the ops of a run"


@probe("pytree")
def _pytree(api: Any) -> str:
    pytree = api.private("pytree")
    found = [(pytree.keystr(path), leaf) for path, leaf in pytree.tree_flatten_with_path({"a": (1, [2])})[0]]
    _expect(found == [("['a'][0]", 1), ("['a'][1][0]", 2)], f"paths {found}")
    _expect(pytree.tree_map(lambda x: x + 1, [1, (2,)]) == [2, (3,)], "another structure")
    return "nested values walked with their paths"


@probe("backend_wrapper")
def _backend_wrapper(api: Any) -> str:
    api.private("backend_wrapper")  # trace_recurrent_layers is silent where it is gone
    graphs: list[int] = []

    def backend(gm: torch.fx.GraphModule, _: Sequence[Any]) -> Any:
        graphs.append(sum(n.op == "call_function" for n in gm.graph.nodes))
        return gm.forward

    for found in (0, 1):
        torch.compiler.reset()
        torch.compile(torch.nn.RNN(2, 2), backend=backend)(torch.ones(1, 1, 2))
        _expect(len(graphs) == found, f"{len(graphs)} graphs instead of {found} of a recurrent layer")
        api.trace_recurrent_layers(backend)
    return "a recurrent layer traced for a backend that asks for it, and for no other"


@probe("prims_common")
def _prims_common(api: Any) -> str:
    wide, last = torch.empty(2, 3).t(), torch.empty(1, 2, 3, 4).to(memory_format=torch.channels_last)
    _expect(tuple(api.elementwise_strides(wide, wide)) == (1, 3), "element-wise ops keep no order")
    _expect(api.suggested_format(last) is torch.channels_last, "channels_last is not suggested")
    return "strides of element-wise results, and the suggested memory format"


@probe("proxy_tensor")
def _proxy_tensor(api: Any) -> str:
    def traced(x: torch.Tensor) -> torch.Tensor:
        with api.untraced():
            torch.sin(x)
        return x + 1

    graph = api.private("proxy_tensor").make_fx(traced)(torch.ones(2)).graph
    calls = [str(n.target) for n in graph.nodes if n.op == "call_function"]
    _expect(calls == ["aten.add.Tensor"], f"traced {calls}")
    return "ops that leave no nodes"
