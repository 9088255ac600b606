"""ONNX as a second road to TVM: the same training graphs through torch's exporter, ONNX's checker, TVM's ONNX importer.

What comes out is judged by the float64 rule, on TVM and in onnxruntime where that is installed. ONNX draws random
numbers of its own: a graph with dropout in it is exported, and its masks are others.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import torch

from relaxgrad.bridge import torch_api
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.schemas import CapturedGraph

from .forked import in_fork
from .models import describe
from .stock import Runs, first_fault

SECONDS = 180.0  # for one graph
OPSET = 20


class Road(StrEnum):
    """How far a graph came."""

    RIGHT = "right"
    WRONG = "wrong"
    NOT_RUN = "not run"
    NOT_COMPILED = "not compiled"
    NOT_MAPPED = "not mapped"  # TVM's importer has no such operator
    INVALID = "invalid"  # ONNX's checker refuses the file
    NOT_EXPORTED = "not exported"  # ONNX has no operator for it, or the exporter no translation
    CRASH = "crash"  # the process died, or hung


@dataclass
class OnnxRecord:
    """One graph on this road."""

    kind: str  # of the graph
    nodes: int  # of the ONNX graph
    tvm: Road
    detail: str = ""
    onnxruntime: Road | None = None  # None where it is not installed, or nothing was exported
    unmapped: list[str] = field(default_factory=list)  # ops that had no translation, of ATen or of ONNX

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
    """Every graph on this road, each in a fork of this process. Raises UserError where onnxscript is not installed."""
    records = []
    for graph, inputs in runs:
        record, ended = in_fork(lambda: try_onnx(graph, inputs).to_json(), timeout)  # noqa: B023 - called at once
        records.append(record or OnnxRecord(graph.kind.value, 0, Road.CRASH, ended).to_json())
    return records


def try_onnx(graph: CapturedGraph, inputs: list[Any]) -> OnnxRecord:
    """Exports, checks, translates, compiles, runs and judges one graph. Raises nothing for what the tools do."""
    record = OnnxRecord(graph.kind.value, 0, Road.NOT_EXPORTED)

    def stopped(road: Road, error: Exception) -> OnnxRecord:
        record.tvm, record.detail = road, describe(error)[:300]
        record.unmapped = lacking(error)
        return record

    try:
        model = export(graph, inputs)
    except UserError:
        raise
    except Exception as error:
        return stopped(Road.NOT_EXPORTED, error)
    record.nodes = len(model.graph.node)
    import onnx

    try:
        onnx.checker.check_model(model)
    except Exception as error:
        return stopped(Road.INVALID, error)
    given = {i.name.removesuffix("_orig"): i.name for i in model.graph.input}
    named = {
        given[meaning.name]: value for meaning, value in zip(graph.inputs, inputs, strict=True) if meaning.name in given
    }
    record.onnxruntime = _in_onnxruntime(graph, inputs, model, named)
    return _on_tvm(graph, inputs, model, named, record, stopped)


def _on_tvm(
    graph: CapturedGraph,
    inputs: list[Any],
    model: Any,
    named: dict[str, torch.Tensor],
    record: OnnxRecord,
    stopped: Callable[[Road, Exception], OnnxRecord],
) -> OnnxRecord:
    import tvm
    from tvm.relax.frontend.onnx import from_onnx

    try:
        module = from_onnx(model, keep_params_in_input=False)
    except Exception as error:
        return stopped(Road.NOT_MAPPED, error)
    try:
        executable = tvm.compile(module, target="llvm")
    except Exception as error:
        return stopped(Road.NOT_COMPILED, error)
    try:
        machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
        returned = machine["main"](*(named[i.name].contiguous() for i in model.graph.input))
        many = not hasattr(returned, "dtype") and hasattr(returned, "__len__")
        results = [
            r if isinstance(r, torch.Tensor) else torch.from_dlpack(r) for r in (returned if many else [returned])
        ]
    except Exception as error:
        return stopped(Road.NOT_RUN, error)
    fault = first_fault(graph.module, inputs, results)
    record.tvm, record.detail = (Road.WRONG if fault else Road.RIGHT), fault[:300]
    return record


def _in_onnxruntime(graph: CapturedGraph, inputs: list[Any], model: Any, named: dict[str, torch.Tensor]) -> Road | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        results = session.run(None, {name: value.numpy() for name, value in named.items()})
    except Exception:  # an operator or dtype that it lacks
        return Road.NOT_RUN
    return Road.WRONG if first_fault(graph.module, inputs, [torch.from_numpy(r) for r in results]) else Road.RIGHT


def lacking(error: BaseException | None) -> list[str]:
    """The ops that an error of the exporter or of TVM's importer names."""
    found: list[str] = []
    while error is not None:
        text = str(error)
        if named := re.search(r"not supported for frontend ONNX: ([\w, ]+)", text):
            found += [name.strip() for name in named[1].split(",")]
        found += re.findall(r"OpOverload\(op='([\w.]+)'", text)
        error = error.__cause__
    return sorted(set(found))


#: Of `row`.
COLUMNS = ("graphs", "exported", "mapped", "run", "right", "right in onnxruntime")


def row(records: list[dict[str, Any]]) -> list[int | str]:
    """A model's graphs in figures."""
    counts = [r["tvm"] for r in records]
    stages = (
        (Road.NOT_EXPORTED, Road.CRASH),
        (Road.NOT_EXPORTED, Road.INVALID, Road.NOT_MAPPED, Road.CRASH),
        (Road.NOT_EXPORTED, Road.INVALID, Road.NOT_MAPPED, Road.NOT_COMPILED, Road.NOT_RUN, Road.CRASH),
    )
    judged = [r["onnxruntime"] for r in records if r["onnxruntime"] is not None]
    right = f"{judged.count(Road.RIGHT)} of {len(judged)}" if judged else "-"
    return [len(records), *(sum(c not in short for c in counts) for short in stages), counts.count(Road.RIGHT), right]
