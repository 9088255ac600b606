# SPDX-License-Identifier: Apache-2.0
"""docs/tutorial.md: every listing in it is what a run prints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from relaxgrad.reports import tutorial_page
from tests.expected_skips import Lacking, skip

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


def stored_backends(text: str) -> str:
    section = text.partition("## Which backend owns which layer")[2].partition("\n## ")[0]
    return section[section.index("| backend") :].strip()


def need_torch_of_the_page() -> None:
    if f"with torch {torch.__version__};" not in PAGE.read_text(encoding="utf-8"):
        skip(Lacking.TORCH_RELEASE, torch.__version__)


def test_the_page_is_what_its_listings_print() -> None:
    need_torch_of_the_page()
    text = PAGE.read_text(encoding="utf-8")
    assert tutorial_page.page(stored_backends(text)) == text
    assert "loss 7.0" in text
    assert "gradients 3.0 2.0 1.0" in text


@pytest.mark.slow
def test_the_backends_are_what_this_torch_has() -> None:
    need_torch_of_the_page()
    table = tutorial_page.backends_table()
    assert table == stored_backends(PAGE.read_text(encoding="utf-8"))
    (own,) = [line for line in table.splitlines() if "`relaxgrad`" in line]
    assert [cell.strip() for cell in own.strip("|").split("|")][1:] == ["yes", "none", "yes"]
