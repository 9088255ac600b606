# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/ops: made from stored data alone, and what they say of an op is what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.sweeps.records import Records
from relaxgrad.reports.ops_pages import collect, family_of, main, pages

ROOT = Path(__file__).resolve().parents[2]


def test_the_pages_are_made_from_the_stored_data() -> None:
    folder = ROOT / "docs" / "ops"
    made = pages(json.loads((folder / "data.json").read_text()))
    stored = {path.name: path.read_text() for path in folder.glob("*.md")}
    assert made.keys() == stored.keys(), "run: python -m relaxgrad.reports.ops_pages"
    assert [name for name in made if made[name] != stored[name]] == [], "run: python -m relaxgrad.reports.ops_pages"


def test_the_stored_data_covers_core_aten_and_the_logs() -> None:
    ops = json.loads((ROOT / "docs" / "ops" / "data.json").read_text())["ops"]
    assert sum("core" in op for op in ops.values()) == 193
    assert sum("recorded" in op for op in ops.values()) > 100


def write(path: Path, head: dict[str, Any], *records: dict[str, Any]) -> None:
    file = Records(path, {"versions": {"torch": "2.13.0", "apache-tvm": "0.27.0"}, **head}, False)
    for number, record in enumerate(records):
        file.add({"sample": number, "graphs": 1, "seconds": 0.1, **record})
    file.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    sort = "aten.sort.default"
    write(
        tmp_path / "a.jsonl",
        {"sweep": "core-aten", "settings": {"dynamic": False}, "entries": [sort, "aten.add_.Tensor"]},
        {"entry": sort, "status": "pass", "text": "((T([3], f32),), {})",
         "outputs": {"out[0]": "verified", "out[1]": "untested"}, "calls": {"native": 1}, "ops": {sort: {"native": 1}}},
        {"entry": "aten.add_.Tensor", "status": "wrong", "text": "((T([3], f16),), {})", "detail": "out: a | b",
         "outputs": {"out": "wrong"}, "calls": {"native": 1}, "ops": {"aten.add.Tensor": {"native": 1}}},
    )  # fmt: skip
    write(
        tmp_path / "b.jsonl",
        {"sweep": "op-logs", "settings": {"dynamic": True}, "entries": [sort]},
        {"entry": sort, "status": "pass", "count": 5, "text": "((T([3], i64),), {})", "symbolic": True,
         "outputs": {"out[0]": "verified"}, "calls": {"fallback": 1}, "ops": {sort: {"fallback": 1}},
         "reasons": ["aten.sort.default: dtype not covered"]},
        {"entry": sort, "status": "eager", "count": 1, "text": "((T([3], c64),), {})"},
    )  # fmt: skip
    write(
        tmp_path / "c.jsonl",
        {"sweep": "opinfo", "settings": {"dtype": "bfloat16", "dynamic": False}, "entries": ["sort"]},
        {"entry": "sort", "status": "pass", "calls": {"native": 3},
         "ops": {sort: {"native": 2}, "aten.mul.Tensor": {"native": 1}}},
        {"entry": "sort", "status": "vacuous", "calls": {"native": 1}, "ops": {sort: {"native": 1}}},
    )  # fmt: skip
    return tmp_path


def row(page: str, op: str) -> list[str]:
    (line,) = [line for line in page.splitlines() if line.startswith("|") and f"`{op}`" in line]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_what_a_page_says(folder: Path) -> None:
    made = pages(collect(list(folder.glob("*.jsonl"))))
    _, kind, verification, dtypes, symbolic, core, recorded, opinfo = row(made["sort.md"], "aten.sort.default")
    assert kind == "native 80%, fallback 20%"
    assert verification == "verified (out[1] untested)"
    assert dtypes == "bfloat16, float32, int64"
    assert (symbolic, core, recorded, opinfo) == ("1", "1 of 1", "1 of 1", "2 of 2")
    assert "- falls back: aten.sort.default: dtype not covered" in made["sort.md"]
    assert row(made["in-place.md"], "aten.add_.Tensor")[2] == "wrong (out)"
    assert "- wrong: `((T([3], f16),), {})`: out: a \\| b" in made["in-place.md"]
    assert row(made["pointwise.md"], "aten.mul.Tensor")[2] == "verified through OpInfo"
    assert row(made["pointwise.md"], "aten.add.Tensor")[2] == "untested"
    assert "Recorded training calls (symbolic sizes, every sample)" in made["README.md"]
    assert "torch 2.13.0" in made["README.md"]


def test_families() -> None:
    assert family_of("aten.sum.dim_IntList", {"kinds": {}}) == "reduce"
    assert family_of("aten.mul_.Tensor", {"kinds": {}}) == "in-place"
    assert family_of("aten.fft_fft.default", {"kinds": {"fallback": 1}}) == "fallback"
    assert family_of("aten.fft_fft.default", {"kinds": {}}) == "decomposed"
    assert family_of("aten.bernoulli.default", {"kinds": {}}) == "random"


def test_pages_of_ops_that_are_gone_go(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "docs" / "ops").mkdir(parents=True)
    (root / "docs" / "ops" / "old.md").write_text("old")
    assert main([str(folder)], root) == 0
    names = {path.name for path in (root / "docs" / "ops").iterdir()}
    assert names == {"README.md", "data.json", "sort.md", "in-place.md", "pointwise.md"}
    before = (root / "docs" / "ops" / "sort.md").read_text()
    assert main([], root) == 0
    assert (root / "docs" / "ops" / "sort.md").read_text() == before
    with pytest.raises(UserError, match=r"no \*\.jsonl"):
        main([str(root)], root)
