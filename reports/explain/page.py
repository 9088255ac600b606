"""The stages as one page without network, and as text for the terminal."""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence

from .stages import Cell, Listing, Stage, Table


def page(model: str, stages: Sequence[Stage]) -> str:
    """The HTML of one model's stages: rows that belong together light up together, links lead from stage to stage."""
    import jinja2

    files = importlib.resources.files(__package__) / "templates"
    text = {name: (files / name).read_text(encoding="utf-8") for name in ("page.html.j2", "page.css", "page.js")}
    ids = {row.id for s in stages for b in s.blocks if isinstance(b, Table) for row in b.rows if row.id}
    ids |= {b.id for s in stages for b in s.blocks if isinstance(b, Listing) and b.id}

    def lands(cell: Cell) -> bool:
        """Whether a link leads anywhere on this page."""
        return bool(cell.link) and cell.link in ids

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests |= {"table": lambda block: isinstance(block, Table), "landing": lands}
    return environment.from_string(text["page.html.j2"]).render(
        model=model, stages=stages, css=text["page.css"], js=text["page.js"]
    )


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
