# SPDX-License-Identifier: Apache-2.0
"""README.md holds what the stored results say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relaxgrad.bridge.errors import UserError
from relaxgrad.reports import readme

ROOT = Path(__file__).parents[2]


def test_readme_is_what_the_stored_results_make_of_it() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.render(text, ROOT / "docs" / "results") == text, "run `make readme`"


def test_the_stored_audit_is_of_the_whole_zoo() -> None:
    from relaxgrad.coverage.zoo import select

    stored = json.loads((ROOT / "docs" / "results" / "models.json").read_text(encoding="utf-8"))
    assert [row["model"] for row in stored["models"]] == select("all")


def test_what_is_stored_is_what_is_shown() -> None:
    """Every measurement rewrites these files: they hold summaries, and stay small."""
    files = [*(ROOT / "docs" / "results").iterdir(), ROOT / "docs" / "ops" / "data.json"]
    assert sum(file.stat().st_size for file in files) < 400_000


def test_a_line_for_all_models_adds_them_up() -> None:
    row = {
        "model": "a", "group": "text", "verdict": "trains", "parameters": 1200, "graphs": 2,
        "calls": {"native": 6, "library": 2}, "gradients": [4, 4],
    }  # fmt: skip
    other = row | {"model": "b", "verdict": "does not train", "calls": {"fallback": 3}, "gradients": [0, 4]}
    third = other | {"model": "c"}
    versions = {"torch": "2", "apache-tvm": "0", "transformers": "5"}
    table = readme.models_table({"versions": versions, "models": [row, other, third]})
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    assert [line[0] for line in lines[2:]] == ["`a`", "`b`", "**all 3 of the zoo**"]
    assert lines[-1][1:] == ["3,600", "6", "6", "2", "0", "6", "0", "4 of 12", "**1 train**"]


def test_a_readme_without_the_marks_of_a_table_is_an_error() -> None:
    with pytest.raises(UserError, match="no table 'models'"):
        readme.with_table("# title", "models", "| a |")


def test_only_the_text_between_the_marks_changes() -> None:
    text = "before\n<!-- t:begin -->\nold\n<!-- t:end -->\nafter\n"
    assert readme.with_table(text, "t", "new") == "before\n<!-- t:begin -->\n\nnew\n\n<!-- t:end -->\nafter\n"
