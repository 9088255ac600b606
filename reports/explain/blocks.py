# SPDX-License-Identifier: Apache-2.0
"""What a stage is made of: tables and listings, whose rows and lines may lead to others and belong to others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """A cell of a table. `link`: the id of what it leads to; `parts`: cells that it lists, each with its own link."""

    text: str
    link: str = ""
    parts: tuple[Cell, ...] = ()


def listed(cells: list[Cell]) -> Cell:
    """One cell of several."""
    return Cell(", ".join(cell.text for cell in cells), parts=tuple(cells))


@dataclass(frozen=True)
class Row:
    """A row of a table. `keys`: each shared by all that belong together."""

    cells: tuple[Cell, ...]
    id: str = ""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table under a title."""

    title: str
    columns: tuple[str, ...]
    rows: list[Row]


@dataclass(frozen=True)
class Listing:
    """Code or text under a title; long ones are folded on the page.

    `calls`: name of a function that the text calls -> the id of what it leads to; `lines`: number of a line, from 0 ->
    its id, for what leads to it.
    """

    title: str
    text: str
    id: str = ""
    folded: bool = False
    keys: tuple[str, ...] = ()
    calls: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[int, str] = field(default_factory=dict)


@dataclass
class Stage:
    """One stage."""

    name: str
    title: str
    about: str
    numbers: str  # one line
    blocks: list[Table | Listing] = field(default_factory=list)


#: A call of a function of the same module in a printed Relax function: `R.call_tir(NAME, ` or `NAME(`.
CALL = re.compile(r"(?<=\bcall_tir\()\w+(?=,)|(?<![\w.\"])\w+(?=\()")


def calls_in(text: str) -> set[str]:
    """The functions that a printed Relax function calls, and perhaps words that look like calls."""
    return set(CALL.findall(text))


def count(number: int, what: str, plural: str = "") -> str:
    """A number with its noun."""
    return f"{number:,} {what if number == 1 else plural or what + 's'}"
