# SPDX-License-Identifier: Apache-2.0
"""What a browser would make of a page, as far as a parser can tell."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """Collects what a page asks from elsewhere, its text, and whether its elements close in order."""

    EMPTY = ("meta", "link", "input", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in self.EMPTY:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href"):
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if not self.open or self.open[-1] not in ("style", "script") else ""


def page_of(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open
    return page


def needs_nothing_from_elsewhere(page: Page) -> bool:
    """Whether every link leads to a place of the page, and every place is one."""
    inside = [link for link in page.links if link.startswith("#")]
    outside = [link for link in page.links if not link.startswith(("#", "data:,"))]
    return not outside and {link[1:] for link in inside} <= set(page.ids) and len(page.ids) == len(set(page.ids))
