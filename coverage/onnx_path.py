# SPDX-License-Identifier: Apache-2.0
"""ONNX as a second path to TVM: the same training graphs through torch's exporter, ONNX's checker, TVM's ONNX importer.

What comes out is validated by the float64 rule, on TVM and in onnxruntime where that is installed.

Note [Random numbers]
ONNX draws random numbers of its own, and TVM's importer knows no such operator: of a graph with dropout in it nothing
can be validated. So such a graph is sent twice: as it stands, and with what its random ops draw given as inputs.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import torch

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.forked import in_fork
from relaxgrad.bridge.schemas import CapturedGraph, GraphInput, InputRole

from .harness.models import describe
from .upstream_importer import Runs, first_fault

SECONDS = 180.0  # for one graph
OPSET = 20
SEED = 20  # of the random numbers that are given


class OnnxOutcome(StrEnum):
    """How far a graph came."""

    RIGHT = "right"
    WRONG = "wrong"
    NOT_RUN = "not run"
    NOT_COMPILED = "not compiled"
    NOT_MAPPED = "not mapped"  # TVM's importer has no such operator
    INVALID = "invalid"  # ONNX's checker refuses the file
    NOT_EXPORTED = "not exported"  # ONNX has no operator for it, or the exporter no translation
    DRAWS = "draws its own numbers"  # it runs, and there is nothing to compare with
    CRASH = "crash"  # the process died, or hung


@dataclass
class OnnxRecord:
    """One graph on this path."""

    kind: str  # of the graph
    nodes: int  # of the ONNX graph
    tvm: OnnxOutcome
    detail: str = ""
    onnxruntime: OnnxOutcome | None = None  # None where it is not installed, or nothing was exported
    unmapped: list[str] = field(default_factory=list)  # ops that had no translation, of ATen or of ONNX
    runtime_detail: str = ""  # what onnxruntime said, where it did not run
    random: list[str] = field(default_factory=list)  # ops of the graph that draw
    given: dict[str, Any] | None = None  # the same graph with its random numbers given, where it has such ops

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def export(graph: CapturedGraph, inputs: list[Any]) -> Any:
    """The graph as an ONNX model (a ModelProto). Raises what the exporter raises; UserError where that is not there."""
    try:
        import onnxscript  # noqa: F401 - torch's exporter needs it
    except ImportError as error:
        raise UserError(
            f"ONNX export needs onnxscript, which is not installed: pip install relaxgrad[onnx] ({error})"
        ) from error
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), torch_api.quiet():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                graph.module.eval(), tuple(inputs), dynamo=True, verbose=False, opset_version=OPSET
            )
    finally:
        logging.disable(previous)
    assert program is not None
    return program.model_proto


def run_onnx(runs: Runs, timeout: float = SECONDS) -> list[dict[str, Any]]:
    """Every graph on this path, each in a fork of this process. Raises UserError where onnxscript is not installed."""
    records = []
    for graph, inputs in runs:
        record, ended = in_fork(lambda: try_onnx(graph, inputs).to_json(), timeout)  # noqa: B023 - called at once
        records.append(record or OnnxRecord(graph.kind.value, 0, OnnxOutcome.CRASH, ended).to_json())
    return records


def try_onnx(graph: CapturedGraph, inputs: list[Any]) -> OnnxRecord:
    """Exports, checks, translates, compiles, runs and validates one graph. Raises nothing for what the tools do."""
    random = sorted({str(node.target) for node in _drawing(graph)})
    record = _try(graph, inputs, validated=not random)
    if random:
        record.random, record.given = random, _try(*draws_given(graph, inputs)).to_json()
    return record


def _drawing(graph: CapturedGraph) -> list[torch.fx.Node]:
    """The nodes whose one result is drawn from a generator."""
    calls = (node for node in graph.module.graph.nodes if isinstance(node.target, torch_api.OpOverload))
    return [
        node
        for node in calls
        if torch.Tag.nondeterministic_seeded in node.target.tags and isinstance(node.meta.get("val"), torch.Tensor)
    ]


def draws_given(graph: CapturedGraph, inputs: list[Any]) -> tuple[CapturedGraph, list[Any]]:
    """The graph with the results of its random ops as further inputs, and its inputs with what they draw in eager."""
    from relaxgrad.coverage.samples.groups import values_of

    drawn = _drawing(graph)
    values = values_of(graph.module, inputs, SEED)
    new, copies = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
    nodes = list(graph.module.graph.nodes)
    for node in [*(n for n in nodes if n.op == "placeholder"), *drawn]:
        copies[node] = new.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in nodes:
        if node not in copies and node.op != "output":
            copies[node] = new.node_copy(node, copies.__getitem__)
        elif node.op == "output":
            new.output(torch.fx.node.map_arg(node.args[0], copies.__getitem__))
    module = torch.fx.GraphModule(graph.module, new)
    meanings = [*graph.inputs, *(GraphInput(node.name, InputRole.RNG, str(node.target)) for node in drawn)]
    return replace(graph, module=module, inputs=tuple(meanings)), [*inputs, *(values[node] for node in drawn)]


def _try(graph: CapturedGraph, inputs: list[Any], validated: bool = True) -> OnnxRecord:
    """One graph down this path. Where it is not `validated`, its values are not looked at."""
    record = OnnxRecord(graph.kind.value, 0, OnnxOutcome.NOT_EXPORTED)

    def stopped(outcome: OnnxOutcome, error: Exception) -> OnnxRecord:
        record.tvm, record.detail = outcome, _plainly(error)
        record.unmapped = lacking(error)
        return record

    try:
        model = export(graph, inputs)
    except UserError:
        raise
    except Exception as error:
        stopped(OnnxOutcome.NOT_EXPORTED, error)
        record.unmapped = sorted({*record.unmapped, *_without_form(graph, inputs)})
        return record
    record.nodes = len(model.graph.node)
    import onnx

    try:
        onnx.checker.check_model(model)
    except Exception as error:
        return stopped(OnnxOutcome.INVALID, error)
    given = {i.name.removesuffix("_orig"): i.name for i in model.graph.input}
    named = {
        given[meaning.name]: value for meaning, value in zip(graph.inputs, inputs, strict=True) if meaning.name in given
    }
    record.onnxruntime, record.runtime_detail = _in_onnxruntime(graph, inputs, model, named, validated)
    _on_tvm(graph, inputs, model, named, record, stopped)
    if not validated and record.tvm in (OnnxOutcome.RIGHT, OnnxOutcome.WRONG):
        record.tvm, record.detail = OnnxOutcome.DRAWS, ""
    return record


def _plainly(error: BaseException) -> str:
    """One line for an exception of the exporter or an importer: its first cause, without colours."""
    while error.__cause__ is not None:
        error = error.__cause__
    return re.sub(r"\x1b\[[0-9;]*m", "", describe(error))[:300]


def _without_form(graph: CapturedGraph, inputs: list[Any]) -> set[str]:
    """The ops of a graph that have no form in ONNX: those of which a call alone is not exported either.

    The exporter names the first one that it meets, and a graph may have several.
    """
    from relaxgrad.coverage.samples.groups import group_graph, values_of

    values = values_of(graph.module, inputs, SEED)
    calls = {n.target: n for n in graph.module.graph.nodes if isinstance(n.target, torch_api.OpOverload) and n.users}
    found = set[str]()
    for node in calls.values():
        part, outside = group_graph(graph, [node])
        try:
            export(part, [values[n] for n in outside])
        except Exception as error:
            found |= set(lacking(error))
    return found


def _on_tvm(
    graph: CapturedGraph,
    inputs: list[Any],
    model: Any,
    named: dict[str, torch.Tensor],
    record: OnnxRecord,
    stopped: Callable[[OnnxOutcome, Exception], OnnxRecord],
) -> OnnxRecord:
    import tvm
    from tvm.relax.frontend.onnx import from_onnx

    try:
        module = from_onnx(model, keep_params_in_input=False)
    except Exception as error:
        return stopped(OnnxOutcome.NOT_MAPPED, error)
    try:
        executable = tvm.compile(module, target="llvm")
    except Exception as error:
        return stopped(OnnxOutcome.NOT_COMPILED, error)
    try:
        machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
        returned = machine["main"](*(named[i.name].contiguous() for i in model.graph.input))
        many = not hasattr(returned, "dtype") and hasattr(returned, "__len__")
        results = [
            r if isinstance(r, torch.Tensor) else torch.from_dlpack(r) for r in (returned if many else [returned])
        ]
    except Exception as error:
        return stopped(OnnxOutcome.NOT_RUN, error)
    fault = first_fault(graph.module, inputs, results)
    record.tvm, record.detail = (OnnxOutcome.WRONG if fault else OnnxOutcome.RIGHT), fault[:300]
    return record


def _in_onnxruntime(
    graph: CapturedGraph, inputs: list[Any], model: Any, named: dict[str, torch.Tensor], validated: bool
) -> tuple[OnnxOutcome | None, str]:
    """(how far it came there, and what it says where it is not right)."""
    try:
        import onnxruntime
    except ImportError:
        return None, ""
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        results = session.run(None, {name: value.numpy() for name, value in named.items()})
    except Exception as error:  # an operator or dtype that it lacks
        return OnnxOutcome.NOT_RUN, _plainly(error)
    if not validated:
        return OnnxOutcome.DRAWS, ""
    fault = first_fault(graph.module, inputs, [torch.from_numpy(r) for r in results])
    return (OnnxOutcome.WRONG if fault else OnnxOutcome.RIGHT), fault[:300]


def lacking(error: BaseException | None) -> list[str]:
    """The ops that an error of the exporter or of TVM's importer names."""
    found: list[str] = []
    while error is not None:
        text = str(error)
        if named := re.search(r"not supported for frontend ONNX: ([\w, ]+)", text):
            found += [name.strip() for name in named[1].split(",")]
        found += re.findall(r"OpOverload\(op='([\w.]+)'", text)
        found += re.findall(r"Missing outputs during conversion.* in (\w+)\.", text)
        error = error.__cause__
    return sorted(set(found))


#: Of `row`. From "mapped" on with random numbers given, see Note [Random numbers].
COLUMNS = ("graphs", "exported", "mapped as it stands", "mapped", "run", "right", "right in onnxruntime")


def row(records: list[dict[str, Any]]) -> list[int | str]:
    """A model's graphs in figures."""
    unmapped = (OnnxOutcome.NOT_EXPORTED, OnnxOutcome.INVALID, OnnxOutcome.NOT_MAPPED, OnnxOutcome.CRASH)
    comparable = [record["given"] or record for record in records]
    counts = [record["tvm"] for record in comparable]
    validated = [record["onnxruntime"] for record in comparable if record["onnxruntime"] is not None]
    right = f"{validated.count(OnnxOutcome.RIGHT)} of {len(validated)}" if validated else "-"
    return [
        len(records),
        sum(record["nodes"] > 0 and record["tvm"] != OnnxOutcome.INVALID for record in records),
        sum(record["tvm"] not in unmapped for record in records),
        sum(count not in unmapped for count in counts),
        sum(count in (OnnxOutcome.RIGHT, OnnxOutcome.WRONG) for count in counts),
        counts.count(OnnxOutcome.RIGHT),
        right,
    ]


def lacking_of(records: list[dict[str, Any]]) -> set[str]:
    """The ops without a translation of a model's graphs, as they stand and with random numbers given."""
    found = {op for record in records for op in record["unmapped"]}
    return found | {op for record in records for op in (record["given"] or {}).get("unmapped", ())}
