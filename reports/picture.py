# SPDX-License-Identifier: Apache-2.0
"""A picture of a page's beginning: `python -m relaxgrad.reports.picture REPORT.html -o docs/pictures/report.png`.

The picture of the README is one of a report: `relaxgrad report -o out`, then `make picture`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from relaxgrad.bridge.errors import UserError

from .browser import browser

WIDTH = 1200  # CSS pixels
UNTIL = "coverage"  # the heading of a report above which its picture ends


def take(page: Path, output: Path, until: str = UNTIL, width: int = WIDTH) -> tuple[int, int]:
    """Writes a PNG of `page`, light, from its top to above the element with the id `until`; its size in pixels.

    To the page's end where it has no such element. Raises UserError where the page or a browser is missing.
    """
    if not page.is_file():
        raise UserError(f"there is no page {page}; `relaxgrad report -o DIR` makes DIR/report.html")
    with browser() as chromium:
        context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme="light", offline=True)
        shown = context.new_page()
        shown.goto(page.resolve().as_uri())
        height = shown.evaluate(
            """until => {
                const end = document.getElementById(until);
                return Math.floor(end ? end.getBoundingClientRect().top - 8 : document.documentElement.scrollHeight);
            }""",
            until,
        )
        output.parent.mkdir(parents=True, exist_ok=True)
        clip = {"x": 0, "y": 0, "width": width, "height": height}
        shown.screenshot(path=output, full_page=True, clip=clip)  # type: ignore[arg-type]  # a dict is one
        return width, height


def main(arguments: Sequence[str]) -> int:
    """Takes the picture that the command line asks for; 0, or 2 where that cannot be."""
    parser = argparse.ArgumentParser(prog="python -m relaxgrad.reports.picture", description=take.__doc__)
    parser.add_argument("page", type=Path, metavar="PAGE.html")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.png")
    parser.add_argument("--until", default=UNTIL, metavar="ID", help="the picture ends above it (default: %(default)s)")
    parser.add_argument(
        "--width", type=int, default=WIDTH, metavar="PIXELS", help="of the window (default: %(default)s)"
    )
    asked = parser.parse_args(arguments)
    try:
        width, height = take(asked.page, asked.output, asked.until, asked.width)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{asked.output}: {width} x {height} pixels, {asked.output.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
