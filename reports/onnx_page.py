# SPDX-License-Identifier: Apache-2.0
"""docs/onnx.md: how far training graphs come by way of ONNX.

`python -m relaxgrad.reports.onnx_page AUDIT` reads the audit.jsonl of `relaxgrad audit MODEL... --via onnx -o DIR` into
docs/results/onnx.json and writes the page; without a file it makes the page anew from the stored records. A test holds
that the page is what this makes of them.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.audit.many import FILE, read_audit
from relaxgrad.coverage.harness.records import ONNX_PACKAGES, write_rows, write_text
from relaxgrad.coverage.onnx_path import COLUMNS, OnnxOutcome, row

from .markdown import cell, table

SCHEMA = 1
SHOWN = 160  # characters of what a tool said


def page(data: dict[str, Any]) -> str:
    """The text of docs/onnx.md."""
    models, versions = data["models"], data["versions"]
    names = ("torch", "apache-tvm", *ONNX_PACKAGES)
    measured = ", ".join(f"{name} {versions[name]}" for name in names if versions.get(name))
    parts = [
        "# By way of ONNX",
        "Made from an audit by `python -m relaxgrad.reports.onnx_page`; nothing here is written by hand. Measured with "
        f"{measured}; `relaxgrad audit MODEL... --via onnx -o DIR` measures anew.",
        "Each training graph that PyTorch hands to a backend, forward and backward, goes through torch's ONNX exporter "
        "and `onnx.checker` (exported), TVM's ONNX importer (mapped) and `tvm.compile`, runs on the inputs of a "
        "training step, and is validated by the float64 rule (right); so is onnxruntime. ONNX draws random numbers of "
        "its own: from the column `mapped` on, dropout's masks are given as inputs, so that there is something to "
        "compare.",
        _table(models),
        "## What ONNX cannot express",
        _lacking(models, OnnxOutcome.NOT_EXPORTED) or _none_lacking(models, "graph was exported"),
        "## What TVM's importer does not take",
        _lacking(models, OnnxOutcome.NOT_MAPPED) or _none_lacking(models, "exported graph was mapped"),
        "## What is not right",
        "\n".join(_faults(models)) or "Everything that ran is right.",
    ]
    return "\n\n".join(parts) + "\n"


def _table(models: Sequence[dict[str, Any]]) -> str:
    lines = [[f"`{model['model']}`", *map(str, row(model["graphs"]))] for model in models]
    every = [graph for model in models for graph in model["graphs"]]
    return table([*lines, ["**all**", *map(str, row(every))]], ("model", *COLUMNS))


def _graphs(models: Sequence[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, record) of each graph as it stands, and after it with its random numbers given."""
    for model in models:
        for graph in model["graphs"]:
            name = f"`{model['model']}`, {graph['kind']}"
            yield name, graph
            if graph["given"] is not None:
                yield f"{name}, random numbers given", graph["given"]


def _lacking(models: Sequence[dict[str, Any]], outcome: OnnxOutcome) -> str:
    """The ops for which graphs came no further than `outcome`, each with the graphs."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, graph in _graphs(models):
        if graph["tvm"] == outcome:
            for op in graph["unmapped"] or [_said(graph["detail"])]:
                found[op].append(name)
    return "\n".join(f"- `{op}`: {'; '.join(names)}" for op, names in sorted(found.items()))


def _none_lacking(models: Sequence[dict[str, Any]], what: str) -> str:
    otherwise = any(graph["tvm"] in (OnnxOutcome.INVALID, OnnxOutcome.CRASH) for _, graph in _graphs(models))
    return "Nothing is named; what failed without a name is at the end." if otherwise else f"Every {what}."


def _said(text: str) -> str:
    """What a tool said, without the place in its own files."""
    return cell(text.partition(" at /")[0])[:SHOWN]


def _faults(models: Sequence[dict[str, Any]]) -> Iterator[str]:
    good = (OnnxOutcome.RIGHT, OnnxOutcome.DRAWS, OnnxOutcome.NOT_EXPORTED, OnnxOutcome.NOT_MAPPED)
    for name, graph in _graphs(models):
        if graph["tvm"] not in good:
            yield f"- {name}, on TVM: {graph['tvm']}: {_said(graph['detail'])}"
        if graph["onnxruntime"] not in (*good, None):
            yield f"- {name}, in onnxruntime: {graph['onnxruntime']}: {_said(graph['runtime_detail'])}"


def main(arguments: Sequence[str], root: Path) -> int:
    """Stores the records and writes the page below `root`/docs; 0. Raises UserError for an audit without this path."""
    stored = root / "docs" / "results" / "onnx.json"
    if arguments:
        path = Path(arguments[0])
        head, records = read_audit(path / FILE if path.is_dir() else path)
        models = [{"model": r["model"], "graphs": r["onnx"]} for r in records if r["onnx"] is not None]
        if not models:
            raise UserError(f"{path} has no model that went this path: `relaxgrad audit MODEL... --via onnx -o DIR`")
        write_rows(stored, {"schema": SCHEMA, "versions": head["versions"], "models": models})
    write_text(root / "docs" / "onnx.md", page(json.loads(stored.read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
