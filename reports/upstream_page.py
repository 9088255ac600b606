# SPDX-License-Identifier: Apache-2.0
"""docs/upstream.md, the known bugs of TVM with a script each: `python -m relaxgrad.reports.upstream_page [-o FILE]`.

Runs every script of coverage/upstream/known_bugs and writes the page from what they print. One script takes 5 to 20 s.
With `--store` (as `make upstream` has it) the outcomes go into coverage/upstream/found.json too, which the audit reads.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.harness.records import check_writable, write_json, write_text
from relaxgrad.coverage.sweeps.core_aten import Sweep
from relaxgrad.coverage.upstream.runner import Found, KnownBug, run_all, stored, unnamed_overloads

from .markdown import cell, templates

WIDTH = 120


def page(bugs: Sequence[KnownBug], unnamed: Sequence[str], core: int) -> str:
    """The page in Markdown. `unnamed`: overloads without a converter, of `core`. Raises UserError for no bugs."""
    if not bugs:
        raise UserError("no script was run: there is nothing to show")
    environment = templates()
    environment.filters |= {"cell": cell, "fill": _fill, "code": _code}
    reproduced = sum(bug.outcome is Found.REPRODUCED for bug in bugs)
    text = environment.get_template("upstream_page.md.j2").render(
        bugs=bugs, unnamed=unnamed, core=core, reproduced=reproduced, versions=bugs[0].versions
    )
    return text.rstrip() + "\n"


def _fill(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _code(names: Sequence[str]) -> str:
    return _fill(", ".join(f"`{name}`" for name in names))


def main(arguments: Sequence[str]) -> int:
    """Writes the page; 0 where every bug was reproduced, else 1. Raises UserError as `check_writable`."""
    parser = argparse.ArgumentParser(prog="python -m relaxgrad.reports.upstream_page", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/upstream.md"), help="file to write")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each script")
    parser.add_argument("--store", type=Path, help="JSON file of the outcomes")
    options = parser.parse_args(arguments)
    for file in filter(None, (options.output, options.store)):
        check_writable(file)

    def tell(bug: KnownBug) -> None:
        print(f"{bug.name}: {bug.outcome} ({bug.seconds:.0f} s)", file=sys.stderr, flush=True)

    bugs = run_all(timeout=options.timeout, on_done=tell)
    unnamed = unnamed_overloads()
    write_text(options.output, page(bugs, unnamed, len(Sweep({}).entries())))
    if options.store is not None:
        write_json(options.store, stored(bugs, unnamed))
    return 0 if all(bug.outcome is Found.REPRODUCED for bug in bugs) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sys.exit(f"error: {error}")
