# SPDX-License-Identifier: Apache-2.0
"""docs/models.md: made from stored rows alone, and what it says of a model is what the audit recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relaxgrad.coverage.audit.auditor import AuditOptions
from relaxgrad.coverage.audit.many import FILE, head_of
from relaxgrad.coverage.audit.record import AuditRecord, Cause, Verdict
from relaxgrad.coverage.blockers.finding import Blocker, Evidence, Finding, Level
from relaxgrad.coverage.sweeps.records import Records
from relaxgrad.reports.models_page import group_table, main, page, rows

GRADIENTS = {"compared": 4, "failed": []}
TRAIN = {"gradients": GRADIENTS, "graphs": {"forward": 1, "backward": 1, "inference": 0}, "graph_breaks": {"print": 1}}
LINE = "/home/me/site-packages/transformers/models/x.py:7 (y | z)"


def operators(level: Level = Level.CLEAR, **calls: int) -> dict[str, Any]:
    evidence = [Evidence("aten.qr: fallback", LINE)] if calls.get("fallback") else []
    return Finding(Blocker.OPERATORS, level, "said", {"calls_by_kind": calls}, evidence).to_json()


def records() -> list[dict[str, Any]]:
    first = AuditRecord("mlp", Verdict.YES, group="tiny", parameters=1200, train=TRAIN)
    first.findings = {"operators": operators(native=6, library=2)}
    first.upstream = [{"outcome": "right"}, {"outcome": "wrong"}]
    second = AuditRecord("qr", Verdict.WITH_FALLBACKS, group="text", train=TRAIN)
    second.findings = {"operators": operators(Level.WORKED_AROUND, native=1, fallback=1)}
    third = AuditRecord("gpt", cause=Cause.CRASH, reason="killed by SIGSEGV", group="text")
    return [record.to_json() for record in (first, second, third)]


def cells(text: str, first: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {first} ")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_groups_add_up() -> None:
    table = group_table(rows(records()))
    assert cells(table, "tiny") == [
        "tiny", "1", "1", "0", "4 of 4", "75.0%", "25.0%", "0.0%", "0.0%", "1 of 2",
    ]  # fmt: skip
    assert cells(table, "text")[:5] == ["text", "2", "1", "1", "4 of 4"]
    assert cells(table, r"**all**")[:5] == ["**all**", "3", "2", "1", "8 of 8"]


def test_a_model_that_does_not_train_says_why_and_a_fallback_has_its_line() -> None:
    data = {"versions": {"torch": "2", "apache-tvm": "0", "transformers": "5"}, "models": rows(records())}
    text = page(data)
    assert "2 of 3 models train on TVM" in text
    assert "- `gpt` does not train: killed by SIGSEGV" in text
    assert cells(text, "`gpt`")[1] == "does not train, crash"
    assert "- `qr`, operators: said (aten.qr: fallback at `transformers/models/x.py:7 (y \\| z)`)" in text
    assert "`mlp`, operators" not in text


def test_a_line_of_the_zoo_is_told_by_its_code() -> None:
    """Its number would be wrong after the next change of the file."""
    record = AuditRecord("net", Verdict.YES, group="tiny", train=TRAIN)
    evidence = [Evidence("aten.qr: fallback", "/home/me/coverage/zoo/audio.py:186 (return f(x))")]
    record.findings = {"operators": Finding(Blocker.OPERATORS, Level.BLOCKS, "said", {}, evidence).to_json()}
    (row,) = rows([record.to_json()])
    assert row["findings"]["operators"]["places"][0]["where"] == "coverage/zoo/audio.py (return f(x))"


def test_what_is_right_only_by_the_wider_grade_or_at_another_seed_is_told() -> None:
    asked = {"seed": 0, "tensors": 2, "error": 0.04, "variants": {"channels_last": 0.05}, "covered": True,
             "beyond": [], "float64": 1e-12, "float64_reason": ""}  # fmt: skip
    gradients = GRADIENTS | {"less_accurate": ["w: less accurate than eager (4.5x)"], "zeros": ["norm.bias"]}
    record = AuditRecord("net", Verdict.YES, group="tiny", train=TRAIN | {"gradients": gradients, "seed": 1})
    assert record.train is not None
    record.train["conditioning"] = [asked]
    versions = {"torch": "2", "apache-tvm": "0", "transformers": "5"}
    text = page({"versions": versions, "models": rows([record.to_json()])})
    assert (
        "- `net` is ill-conditioned: seed 0: 2 tensors off by up to 4.0e-02; eager channels_last moves by 5.0e-02; "
        "compiled in float64 it agrees to 1.0e-12; validated at seed 1, where it is right"
    ) in text
    assert "- `net` is right, less accurate than eager in 1 gradient: w: less accurate" in text
    assert "exactly zero where eager gives none, to `norm.bias`" in text


def test_the_command_reads_an_audit_and_makes_the_page_anew(tmp_path: Path) -> None:
    (tmp_path / "docs" / "results").mkdir(parents=True)
    file = Records(tmp_path / FILE, head_of(AuditOptions()), False)
    for record in records():
        file.add(record)
    file.close()
    assert main([str(tmp_path)], tmp_path) == 0
    text = (tmp_path / "docs" / "models.md").read_text()
    stored = json.loads((tmp_path / "docs" / "results" / "models.json").read_text())
    assert [row["model"] for row in stored["models"]] == ["mlp", "qr", "gpt"]
    (tmp_path / "docs" / "models.md").write_text("")
    assert main([], tmp_path) == 0
    assert (tmp_path / "docs" / "models.md").read_text() == text


def test_an_audit_of_training_alone_keeps_the_stored_blockers(tmp_path: Path) -> None:
    (tmp_path / "docs" / "results").mkdir(parents=True)

    def run(options: AuditOptions, verdict: Verdict, **findings: dict[str, Any]) -> dict[str, Any]:
        record = AuditRecord("mlp", verdict, group="tiny", train=TRAIN)
        record.findings, record.upstream = findings, [{"outcome": "right"}] if options.blockers else None
        path = tmp_path / f"{verdict.name}.jsonl"
        file = Records(path, head_of(options), False)
        file.add(record.to_json())
        file.close()
        assert main([str(path)], tmp_path) == 0
        (row,) = json.loads((tmp_path / "docs" / "results" / "models.json").read_text())["models"]
        return dict(row)

    shapes = Finding(Blocker.DYNAMIC_SHAPES, Level.BLOCKS, "no batch", {}, []).to_json()
    run(AuditOptions(), Verdict.NO, **{"dynamic shapes": shapes, "operators": operators(native=1)})
    row = run(AuditOptions(blockers=False, upstream=False), Verdict.YES, operators=operators(native=2))
    assert row["verdict"] == "trains"
    assert row["findings"]["dynamic shapes"]["headline"] == "no batch"
    assert (row["calls"], row["upstream"]) == ({"native": 2}, [1, 1])
    assert "with `--no-blockers`" in (tmp_path / "docs" / "models.md").read_text()
