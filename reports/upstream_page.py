"""docs/upstream.md, the faults of TVM with a script each: `python -m relaxgrad.reports.upstream_page [-o FILE]`.

Runs every script of coverage/upstream/faults and writes the page from what they print. One script takes 5 to 20 s. With
`--store` (as `make upstream` has it) the outcomes go into coverage/upstream/found.json too, which the audit reads.
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
from relaxgrad.coverage.upstream.runner import Fault, Found, run_all, stored, unnamed_overloads

from .markdown import cell, templates

WIDTH = 120


def page(faults: Sequence[Fault], unnamed: Sequence[str], core: int) -> str:
    """The page in Markdown. `unnamed`: overloads without a converter, of `core`. Raises UserError for no faults."""
    if not faults:
        raise UserError("no script was run: there is nothing to show")
    environment = templates()
    environment.filters |= {"cell": cell, "fill": _fill, "code": _code}
    reproduced = sum(fault.outcome is Found.REPRODUCED for fault in faults)
    text = environment.get_template("upstream_page.md.j2").render(
        faults=faults, unnamed=unnamed, core=core, reproduced=reproduced, versions=faults[0].versions
    )
    return text.rstrip() + "\n"


def _fill(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _code(names: Sequence[str]) -> str:
    return _fill(", ".join(f"`{name}`" for name in names))


def main(arguments: Sequence[str]) -> int:
    """Writes the page; 0 where every fault was reproduced, else 1. Raises UserError as `check_writable`."""
    parser = argparse.ArgumentParser(prog="python -m relaxgrad.reports.upstream_page", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/upstream.md"), help="file to write")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each script")
    parser.add_argument("--store", type=Path, help="JSON file of the outcomes")
    options = parser.parse_args(arguments)
    for file in filter(None, (options.output, options.store)):
        check_writable(file)

    def tell(fault: Fault) -> None:
        print(f"{fault.name}: {fault.outcome} ({fault.seconds:.0f} s)", file=sys.stderr, flush=True)

    faults = run_all(timeout=options.timeout, on_done=tell)
    unnamed = unnamed_overloads()
    write_text(options.output, page(faults, unnamed, len(Sweep({}).entries())))
    if options.store is not None:
        write_json(options.store, stored(faults, unnamed))
    return 0 if all(fault.outcome is Found.REPRODUCED for fault in faults) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sys.exit(f"error: {error}")
