# SPDX-License-Identifier: Apache-2.0
"""What the Markdown pages share: templates, and text that stands in a table's cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def templates() -> Environment:
    """The templates of this folder. A name that is not given is an error; nothing is escaped: this is no HTML."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=folder, undefined=StrictUndefined, keep_trailing_newline=True)


def cell(text: str) -> str:
    """`text` on one line, with nothing that ends a cell."""
    return " ".join(text.replace("|", "\\|").split())


def prose(text: str) -> str:
    """`text` on one line of a paragraph or list, with nothing that Markdown takes for a tag."""
    return cell(text).replace("<", "&lt;")


def table(rows: Sequence[Sequence[str]], columns: Sequence[str], align: Sequence[str] | None = None) -> str:
    """A Markdown table. `align`: "left" or "right" for each column; figures to the right of a name by default."""
    from tabulate import tabulate

    align = align or ("left", *["right"] * (len(columns) - 1))
    return str(tabulate(rows, columns, tablefmt="github", colalign=align if rows else None, disable_numparse=True))
