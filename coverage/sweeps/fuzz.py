# SPDX-License-Identifier: Apache-2.0
"""Random small graphs, forward and backward through the backend against eager; a failing one is shrunk to a script.

A graph is Python source: the text that is printed is the text that was run. It is written line by line, each line run
in eager as it is written, so that every graph is valid, and all choices are made by hypothesis, so that a failing
graph shrinks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from relaxgrad.bridge.errors import RelaxgradError, UserError

from ..harness.process import State, run_task
from .call import Call
from .check import GOOD, Checked, Status, check_call
from .driver import NO_LIMIT
from .fuzz_ops import Choose, Template, Value, templates

MOST_LINES = 8
MOST_OUTPUTS = 3
LARGEST = 1e4  # values beyond this are not built upon
GROSS = 1e-2  # relative error that no rounding explains
RETRIES = 4  # other inputs with which a small excess is tried again


@dataclass(frozen=True)
class Program:
    """A graph as source. `inputs` are expressions that make the input tensors."""

    inputs: tuple[str, ...]
    lines: tuple[str, ...]  # `v0 = ...`
    outputs: tuple[str, ...]
    dynamic: bool
    used: tuple[str, ...] = field(default=(), compare=False)  # names of the templates

    def source(self) -> str:
        """The graph as a function `graph(x0, x1, ...)`."""
        names = ", ".join(f"x{i}" for i in range(len(self.inputs)))
        body = [*self.lines, f"return ({', '.join(self.outputs)},)"]
        return f"def graph({names}):\n" + "".join(f"    {line}\n" for line in body)

    def function(self) -> Callable[..., Any]:
        """The graph. Its source is our own, of the templates in fuzz_ops.py alone."""
        import linecache

        name = f"<fuzz {abs(hash(self.source()))}>"
        linecache.cache[name] = (len(self.source()), None, self.source().splitlines(True), name)
        scope: dict[str, Any] = {"torch": torch}
        exec(compile(self.source(), name, "exec"), scope)
        graph: Callable[..., Any] = scope["graph"]
        return graph

    def tensors(self) -> list[Tensor]:
        """The inputs, floating-point ones asking for a gradient."""
        return [_make(text) for text in self.inputs]


def _make(text: str) -> Tensor:
    tensor: Tensor = eval(text, {"torch": torch})  # an expression of our own
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor


# ---------------------------------------------------------------------------------------------------------------------
# Writing

_DTYPES = ["float32", "float32", "float32", "float64", "int64", "bool"]


def write_program(choose: Choose, kinds: list[Template]) -> Program:
    """A random valid graph; `choose` makes every decision."""
    values: list[Value] = []
    inputs = tuple(_write_input(choose) for _ in range(choose([1, 2, 3])))
    for number, text in enumerate(inputs):
        values.append(Value(f"x{number}", _make(text).detach(), exact=True))
    lines: list[str] = []
    used: list[str] = []
    read: set[str] = set()
    for _ in range(choose(list(range(1, MOST_LINES + 1)))):
        template = choose(kinds)
        operands = _operands(template, values, choose)
        line = None if operands is None else template.write(operands, choose)
        value = None if line is None else _run_line(line, {v.name: v.tensor for v in values})
        if operands is None or value is None:
            continue
        exact = template.keeps_exact and all(v.exact for v in operands) and _is_exact(value)
        exact = exact or (template.needs_exact and not value.is_floating_point())
        values.append(Value(f"v{len(lines)}", value, exact))
        lines.append(f"v{len(lines)} = {line}")
        used.append(template.name)
        read.update(v.name for v in operands)
    unread = [v.name for v in values if v.name not in read and v.name.startswith("v")]
    outputs = tuple(unread[-MOST_OUTPUTS:]) or (values[-1].name,)
    return Program(inputs, tuple(lines), outputs, choose([False, True]), tuple(used))


def _write_input(choose: Choose) -> str:
    """A tensor of small multiples of 1/8 with ties and zeros, of rank 0 to 3, contiguous or not."""
    shape = [choose([3, 2, 1, 4, 5, 0]) for _ in range(choose([2, 1, 3, 0]))]
    dtype = choose(_DTYPES)
    layout = choose(["plain", "plain", "transposed", "sliced", "offset"]) if shape else "plain"
    made, then = list(shape), ""
    if layout == "transposed":
        made, then = shape[::-1], f".permute({list(range(len(shape)))[::-1]})"
    elif layout == "sliced":
        made[-1], then = shape[-1] * 2, "[..., ::2]"
    elif layout == "offset":
        made[0], then = shape[0] + 1, "[1:]"
    values = [choose(_NUMBERS) for _ in range(min(math.prod(made), 7))]
    count = math.prod(made)
    numbers = [values[(i * 3 + i // 7) % len(values)] for i in range(count)] if values else []
    if dtype == "bool":
        numbers = [n > 0 for n in numbers]
    elif dtype == "int64":
        numbers = [round(n) for n in numbers]
    return f"torch.tensor({numbers}, dtype=torch.{dtype}).reshape({made}){then}"


_NUMBERS = [1.0, 0.0, -1.0, 0.5, 2.0, -0.25, 1.5, -2.125, 3.0, 0.875]


def _operands(template: Template, values: list[Value], choose: Choose) -> list[Value] | None:
    fit = [v for v in values if template.takes(v) and (v.exact or not template.needs_exact)]
    if not fit:
        return None
    first = choose(fit[::-1])  # the latest first: graphs that are chains shrink best
    operands = [first]
    while len(operands) < template.arity:
        beside = [v for v in fit if _broadcast(first.tensor, v.tensor)]
        operands.append(choose(beside))
    return operands


def _broadcast(a: Tensor, b: Tensor) -> bool:
    try:
        torch.broadcast_shapes(a.shape, b.shape)
    except RuntimeError:
        return False
    return True


def _run_line(text: str, scope: dict[str, Tensor]) -> Tensor | None:
    """The value of a line; None where eager refuses it or it is of no use."""
    try:
        with torch.no_grad():
            value = eval(text, {"torch": torch, **scope})  # an expression of the templates
    except Exception:
        return None
    if not isinstance(value, Tensor) or value.numel() > 400 or value.dim() > 4:
        return None
    if value.is_floating_point() and not bool((value.abs() < LARGEST).all()):
        return None
    return value


def _is_exact(tensor: Tensor) -> bool:
    if not tensor.is_floating_point():
        return True
    scaled = tensor * 64
    return bool(((scaled == scaled.round()) & (tensor.abs() < 1024)).all())


# ---------------------------------------------------------------------------------------------------------------------
# Validation


def check_program(program: Program) -> Checked:
    """The finding on one graph. A small excess over the rule counts only if most of several other inputs show it."""
    checked = check_call(_call(program, 0), program.dynamic)
    if checked.status not in _BEYOND or checked.error > GROSS:
        return checked
    again = [check_call(_call(program, attempt), program.dynamic) for attempt in range(1, RETRIES + 1)]
    if sum(c.status in _BEYOND for c in again) <= RETRIES // 2:
        return Checked(Status.PASS)
    return checked


_BEYOND = (Status.LESS_ACCURATE, Status.WRONG)


def _call(program: Program, attempt: int) -> Call:
    """The graph on its inputs, scaled a little for another attempt: powers of two keep exact values exact."""
    tensors = program.tensors()
    if attempt:
        factor = (2.0, 0.5, -1.0, -2.0)[attempt - 1]
        tensors = [t.detach().mul(factor).requires_grad_() if t.is_floating_point() else t for t in tensors]
    return Call(program.function(), tuple(tensors))


def script(program: Program, detail: str, seed: int) -> str:
    """A script of its own that shows the fault; it needs torch and relaxgrad alone."""
    inputs = ",\n    ".join(program.inputs)
    dynamic = ", dynamic=True" if program.dynamic else ""
    what = "".join(f"# {line}\n" for line in detail.splitlines())
    return f'''# Found by `relaxgrad audit --fuzz` (seed {seed}):
{what}import torch


{program.source()}

INPUTS = [
    {inputs},
]


def run(function):
    inputs = [t.clone().requires_grad_() if t.is_floating_point() else t.clone() for t in INPUTS]
    outputs = function(*inputs)
    leaves = [t for t in inputs if t.requires_grad]
    differentiable = [o for o in outputs if o.requires_grad]
    tangents = [torch.linspace(-1, 2, o.numel(), dtype=o.dtype).reshape(o.shape) for o in differentiable]
    gradients = torch.autograd.grad(differentiable, leaves, tangents, allow_unused=True) if differentiable else ()
    return [*outputs, *gradients]


eager = run(graph)
compiled = run(torch.compile(graph, backend="relaxgrad"{dynamic}))
for number, (expected, seen) in enumerate(zip(eager, compiled, strict=True)):
    print(number, "expected", expected, "seen", seen, sep="\\n")
for expected, seen in zip(eager, compiled, strict=True):
    if expected is None or seen is None:
        assert expected is seen
    else:
        torch.testing.assert_close(seen, expected, equal_nan=True, check_stride=True)
print("no difference")
'''


# ---------------------------------------------------------------------------------------------------------------------
# Running many


class _Found(Exception):
    """A failing graph; hypothesis shrinks what raises it."""

    def __init__(self, program: Program, checked: Checked):
        super().__init__(f"{checked.status}: {checked.detail}")
        self.program = program
        self.checked = checked


def fuzz(
    count: int, seed: int, emit: Callable[[dict[str, Any]], None], check: Callable[[Program], Checked] = check_program
) -> dict[str, Any]:
    """Checks up to `count` random graphs, and stops at the first that fails, shrunk.

    Returns {"graphs": how many were checked, "used": lines by kind, "failure": None or {"detail", "script"}}. Says
    {"event": "graph", "script": ...} before each, so that one that ends the process is known. Raises UserError without
    hypothesis.
    """
    try:
        import hypothesis
        from hypothesis import strategies
    except ImportError as error:
        raise UserError('--fuzz needs hypothesis: pip install "relaxgrad[dev]"') from error
    kinds = templates()
    used: dict[str, int] = {}
    graphs = 0
    failing: list[_Found] = []

    def one(data: Any) -> None:
        nonlocal graphs
        program = write_program(lambda options: data.draw(strategies.sampled_from(options)), kinds)
        emit({"event": "graph", "script": script(program, "this graph ended its process", seed)})
        checked = check(program)
        if not failing:  # the attempts at shrinking are no new graphs
            graphs += 1
            for name in program.used:
                used[name] = used.get(name, 0) + 1
        if checked.status not in GOOD and checked.status is not Status.EAGER:
            failing.append(_Found(program, checked))
            raise failing[-1]

    run = hypothesis.given(strategies.data())(one)
    run = hypothesis.seed(seed)(run)
    run = hypothesis.settings(
        max_examples=count,
        deadline=None,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        verbosity=hypothesis.Verbosity.quiet,
    )(run)
    failure = None
    try:
        run()
    except _Found as found:  # hypothesis runs the smallest last
        failure = _failure(found, seed)
    except Exception as error:
        if not failing:
            raise
        failure = _failure(failing[-1], seed) | {"note": f"{type(error).__name__}: {error}"}
    return {"graphs": graphs, "used": used, "failure": failure}


def _failure(found: _Found, seed: int) -> dict[str, Any]:
    return {"detail": str(found), "script": script(found.program, str(found), seed)}


def task(arguments: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """`fuzz` for the process runner. Arguments: count, seed, limit (seconds for one graph)."""
    import faulthandler

    def watched(program: Program) -> Checked:
        faulthandler.dump_traceback_later(arguments["limit"], exit=True)
        try:
            return check_program(program)
        finally:
            faulthandler.cancel_dump_traceback_later()

    return fuzz(arguments["count"], arguments["seed"], emit, watched)


TASK = "relaxgrad.coverage.sweeps.fuzz:task"
CHUNK = 250  # graphs of one worker process, which hypothesis stops at the first failure
MOST_FAILURES = 20  # after which a run ends: shrinking takes minutes


def run_fuzz(count: int, seed: int, limit: float, listen: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """`count` graphs in worker processes, one after another; a crash or a hang is a failure with its script.

    Returns {"seed", "graphs", "used", "failures": [{"detail", "script"}]}. `listen` gets {"graphs", "failures"} counts
    after each graph. Raises RelaxgradError where a worker cannot start, and passes an interrupt on.
    """
    result: dict[str, Any] = {"seed": seed, "graphs": 0, "used": {}, "failures": []}
    part = 0
    while result["graphs"] < count and len(result["failures"]) < MOST_FAILURES:
        begun: list[str] = []

        def on_event(event: dict[str, Any], begun: list[str] = begun) -> None:
            begun.append(event["script"])
            listen({"graphs": result["graphs"] + len(begun), "failures": len(result["failures"])})

        arguments = {"count": min(CHUNK, count - result["graphs"]), "seed": seed * 10_000 + part, "limit": limit}
        outcome = run_task(TASK, arguments, NO_LIMIT, on_event)
        part += 1
        if outcome.state is State.OK and outcome.value is not None:
            result["graphs"] += outcome.value["graphs"]
            for name, times in outcome.value["used"].items():
                result["used"][name] = result["used"].get(name, 0) + times
            if outcome.value["failure"] is not None:
                result["failures"].append(outcome.value["failure"])
            elif not outcome.value["graphs"]:
                break
        elif outcome.state is State.USER_ERROR:
            raise UserError(outcome.message)
        elif outcome.state is State.CRASHED and begun:
            hung = "Timeout (" in outcome.output  # written by the watchdog
            detail = f"timeout: no result within {limit:.0f} s" if hung else f"crash: {outcome.message}"
            result["graphs"] += len(begun)
            result["failures"].append({"detail": detail, "script": begun[-1]})
        else:
            raise RelaxgradError(f"a worker of the fuzzer failed: {outcome.message}\n{outcome.traceback}")
    return result
