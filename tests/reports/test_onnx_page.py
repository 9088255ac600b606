# SPDX-License-Identifier: Apache-2.0
"""docs/onnx.md: made from the stored records of the path through ONNX, and only of such."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.audit.auditor import AuditOptions
from relaxgrad.coverage.audit.many import FILE, head_of
from relaxgrad.coverage.audit.record import AuditRecord
from relaxgrad.coverage.onnx_path import OnnxOutcome, OnnxRecord
from relaxgrad.coverage.zoo import REPORTED
from relaxgrad.reports import onnx_page

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_stored_records_make_of_it() -> None:
    stored = json.loads((ROOT / "docs" / "results" / "onnx.json").read_text(encoding="utf-8"))
    assert (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8") == onnx_page.page(stored)
    assert [model["model"] for model in stored["models"]] == list(REPORTED)


def audit(folder: Path, graphs: list[dict[str, Any]] | None) -> Path:
    (folder / "docs" / "results").mkdir(parents=True)
    lines = [head_of(AuditOptions(onnx=True)), AuditRecord("mlp", onnx=graphs).to_json()]
    (folder / FILE).write_text("".join(json.dumps({"schema": 1, **line}) + "\n" for line in lines))
    return folder


def test_ops_are_named_with_their_graphs(tmp_path: Path) -> None:
    given = OnnxRecord("forward", 4, OnnxOutcome.WRONG, "output 0: shape", onnxruntime=OnnxOutcome.RIGHT).to_json()
    graphs = [
        OnnxRecord(
            "forward", 5, OnnxOutcome.NOT_MAPPED, unmapped=["Random"], onnxruntime=OnnxOutcome.DRAWS, given=given
        ).to_json(),
        OnnxRecord("backward", 0, OnnxOutcome.NOT_EXPORTED, unmapped=["aten.fold"]).to_json(),
        OnnxRecord("backward", 3, OnnxOutcome.NOT_MAPPED, "ValueError: no axis 3 at /usr/lib/x.py:3 (raise)").to_json(),
    ]
    assert onnx_page.main([str(audit(tmp_path, graphs))], tmp_path) == 0
    lines = (tmp_path / "docs" / "onnx.md").read_text().splitlines()
    assert "- `aten.fold`: `mlp`, backward" in lines
    assert "- `Random`: `mlp`, forward" in lines
    assert "- `ValueError: no axis 3`: `mlp`, backward" in lines
    assert "- `mlp`, forward, random numbers given, on TVM: wrong: output 0: shape" in lines
    (row,) = [line for line in lines if line.startswith("| `mlp`")]
    assert [cell.strip() for cell in row.strip("|").split("|")][1:] == ["3", "2", "0", "1", "1", "0", "1 of 1"]


def test_an_audit_without_this_road_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model that went this path"):
        onnx_page.main([str(audit(tmp_path, None))], tmp_path)
