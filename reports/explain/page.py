# SPDX-License-Identifier: Apache-2.0
"""The stages as one page without network, and as text for the terminal."""

from __future__ import annotations

import importlib.resources
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..source_lines import in_file
from .blocks import CALL, Cell, Listing, Row, Stage, Table

#: Rows of a table that is shown unfolded.
LONG = 60


def page(model: str, stages: Sequence[Stage]) -> str:
    """The HTML of one model's stages: what belongs together lights up together, links lead from stage to stage."""
    import jinja2

    files = importlib.resources.files(__package__) / "templates"
    text = {name: (files / name).read_text(encoding="utf-8") for name in ("page.html.j2", "page.css", "page.js")}
    places = _Places(stages)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests |= {"table": lambda block: isinstance(block, Table), "landing": places.lands}
    environment.filters |= {"code": places.code, "in_file": in_file}
    return environment.from_string(text["page.html.j2"]).render(
        model=model, stages=stages, css=text["page.css"], js=text["page.js"], long=LONG
    )


def _rows(stages: Sequence[Stage]) -> Iterator[Row]:
    for stage in stages:
        for block in stage.blocks:
            if isinstance(block, Table):
                yield from block.rows


class _Places:
    """Which places a page has, and what leads to them."""

    def __init__(self, stages: Sequence[Stage]):
        listings = [b for s in stages for b in s.blocks if isinstance(b, Listing)]
        self._ids = {row.id for row in _rows(stages) if row.id} | {b.id for b in listings if b.id}
        lines = {id_ for b in listings for id_ in b.lines.values()}
        self._ids |= lines
        self._keys: dict[str, dict[str, None]] = defaultdict(dict)  # line that a row leads to -> the row's keys
        for row in _rows(stages):
            for cell in row.cells:
                if cell.link in lines:
                    self._keys[cell.link] |= dict.fromkeys(row.keys)

    def lands(self, cell: Cell) -> bool:
        """Whether a cell's link leads anywhere on this page."""
        return bool(cell.link) and cell.link in self._ids

    def code(self, listing: Listing) -> str:
        """The text of a listing with its links, and with an id where a link leads to a line."""
        from markupsafe import Markup, escape

        parts = []
        for number, line in enumerate(listing.text.split("\n")):
            marked, end = Markup(), 0
            for match in CALL.finditer(line) if listing.calls else ():
                if (target := listing.calls.get(match[0], "")) in self._ids:
                    link = Markup('<a href="#{}">{}</a>').format(target, match[0])
                    marked += escape(line[end : match.start()]) + link
                    end = match.end()
            marked += escape(line[end:])
            if (id_ := listing.lines.get(number, "")) in self._keys:
                keys = " ".join(self._keys[id_])
                marked = Markup('<span class="line" id="{}" data-keys="{}">{}</span>').format(id_, keys, marked)
            parts.append(marked)
        return Markup("\n").join(parts)


def plain(stage: Stage) -> str:
    """A stage as text."""
    parts = [f"# {stage.title}", stage.about, stage.numbers]
    for block in stage.blocks:
        if isinstance(block, Listing):
            parts.append(f"## {block.title}\n{block.text.rstrip()}")
        elif block.rows:
            parts.append(f"## {block.title}\n{_table(block)}")
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    from tabulate import tabulate

    rows = [[cell.text for cell in row.cells] for row in table.rows]
    return str(tabulate(rows, table.columns, tablefmt="plain", disable_numparse=True))
