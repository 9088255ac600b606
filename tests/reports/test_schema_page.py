# SPDX-License-Identifier: Apache-2.0
"""docs/report-schema.md: what the classes of report.json make of it, and nothing left out."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from relaxgrad.reports import schema_page
from relaxgrad.reports.feasibility import schema

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_classes_make_of_it() -> None:
    again = "python -m relaxgrad.reports.schema_page"
    assert (ROOT / "docs" / "report-schema.md").read_text(encoding="utf-8") == schema_page.page(), again


def test_every_key_is_on_the_page_with_its_meaning() -> None:
    text = schema_page.page()
    found = [c for c in vars(schema).values() if isinstance(c, type) and issubclass(c, BaseModel) and c.__doc__]
    objects = [c for c in found if c.__module__ == schema.__name__ and not c.__name__.startswith("_")]
    assert len(objects) == 7
    for one in objects:
        _, _, section = text.partition(f"\n## {one.__name__}\n")
        section = section.partition("\n## ")[0]
        for name, field in one.model_fields.items():
            assert field.description, f"{one.__name__}.{name} has no description"
            assert f"| `{field.alias or name}` " in section
            assert field.description in section


def test_the_command_writes_it(tmp_path: Path) -> None:
    assert schema_page.main(["-o", str(tmp_path / "page.md")]) == 0
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert text == schema_page.page()
    assert f"## Version: schema {schema.SCHEMA}\n" in text
