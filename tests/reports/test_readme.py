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


def test_stored_results_hold_every_core_model_of_the_zoo() -> None:
    from relaxgrad.coverage.zoo import CORE

    stored = json.loads((ROOT / "docs" / "results" / "train.json").read_text(encoding="utf-8"))
    assert [record["model"] for record in stored["models"]] == list(CORE)


def test_a_readme_without_the_marks_of_a_table_is_an_error() -> None:
    with pytest.raises(UserError, match="no table 'train'"):
        readme.with_table("# title", "train", "| a |")


def test_only_the_text_between_the_marks_changes() -> None:
    text = "before\n<!-- t:begin -->\nold\n<!-- t:end -->\nafter\n"
    assert readme.with_table(text, "t", "new") == "before\n<!-- t:begin -->\n\nnew\n\n<!-- t:end -->\nafter\n"
