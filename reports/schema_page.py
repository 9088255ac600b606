# SPDX-License-Identifier: Apache-2.0
"""docs/report-schema.md, the keys of report.json: `python -m relaxgrad.reports.schema_page [-o FILE]`.

Made of the classes in feasibility/schema.py, their descriptions included. A test holds that the page is what this makes
of them.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relaxgrad.coverage.harness.records import write_text

from .feasibility import schema
from .markdown import cell, table

COLUMNS = ("key", "type", "default", "meaning")


def page() -> str:
    """The page in Markdown: the report itself, then each object in the order in which it first appears."""
    whole = schema.Report.model_json_schema(by_alias=True)
    objects = whole.pop("$defs")
    _, _, rule = inspect.cleandoc(schema.__doc__ or "").partition("Note [Versions]\n")
    parts = [
        "# report.json",
        "Made by `python -m relaxgrad.reports.schema_page` from the classes that validate a report when it is written "
        "and when it is read (reports/feasibility/schema.py). `relaxgrad report MODEL... -o DIR` writes the file, "
        "`relaxgrad report diff OLD NEW` reads it. Times are seconds, memory is bytes, a ratio above 1 means that "
        "relaxgrad is faster.",
        f"## Version: schema {schema.SCHEMA}",
        rule.replace("\n", " ").strip().replace("SCHEMA", "its number"),
        "## Report",
        _section(whole),
    ]
    for name in _in_order(whole, objects):
        parts += [f"## {name}", _section(objects[name])]
    return "\n\n".join(parts) + "\n"


def _section(found: Mapping[str, Any]) -> str:
    about = inspect.cleandoc(found.get("description", ""))
    if "enum" in found:
        return f"{about} One of {_choices(found['enum'])}."
    rows = [_row(key, value, key in found.get("required", ())) for key, value in found["properties"].items()]
    return f"{about}\n\n{table(rows, COLUMNS, ['left'] * len(COLUMNS))}"


def _row(key: str, value: Mapping[str, Any], required: bool) -> list[str]:
    default = "required" if required else f"`{_json(value.get('default'))}`"
    return [f"`{key}`", _type(value), default, cell(value.get("description", ""))]


def _json(value: Any) -> str:
    return json.dumps(value)


def _type(value: Mapping[str, Any]) -> str:
    """A JSON Schema type in words; another object as a link to its section."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        return " or ".join(_type(choice) for choice in value["anyOf"])
    if "const" in value:
        return f"`{_json(value['const'])}`"
    if "enum" in value:
        return _choices(value["enum"])
    if value.get("type") == "array":
        return f"list of {_type(value['items'])}"
    if value.get("type") == "object":
        held = value.get("additionalProperties")
        return f"object of {_type(held)}" if isinstance(held, dict) else "object"
    return str(value["type"])


def _choices(values: Sequence[Any]) -> str:
    return ", ".join(f"`{_json(value)}`" for value in values)


def _in_order(found: Mapping[str, Any], objects: Mapping[str, Any]) -> list[str]:
    names: list[str] = []

    def visit(value: Any) -> None:
        if isinstance(value, Mapping):
            name = str(value.get("$ref", "")).rpartition("/")[2]
            if name and name not in names:
                names.append(name)
                visit(objects[name])
            for held in value.values():
                visit(held)
        elif isinstance(value, list):
            for held in value:
                visit(held)

    visit(found)
    return names


def main(arguments: Sequence[str]) -> int:
    """Writes the page; 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/report-schema.md"))
    write_text(parser.parse_args(arguments).output, page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
