# SPDX-License-Identifier: Apache-2.0
"""A browser for a whole run of tests, pages that are opened in it under watch, and the pages themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from relaxgrad.reports import browser as browsers
from tests.expected_skips import Lacking, skip


@dataclass
class Opened:
    """A page that is open, and what it should not have done."""

    page: Any
    faults: list[str] = field(default_factory=list)  # messages of the console, errors, requests

    def sized(self) -> tuple[int, int]:
        """(width of what can be scrolled to, width of the window) in CSS pixels."""
        found = self.page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        return found[0], found[1]


Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if reason := browsers.missing():
        skip(Lacking.BROWSER, reason)
    with browsers.browser() as found:
        yield found


@pytest.fixture
def show(browser: Any) -> Iterator[Open]:
    """Opens a file in a window of `width` CSS pixels. Whatever a page asks for but itself is a fault of it."""
    opened: list[Opened] = []

    def show_(file: Path, width: int = 1400, scheme: str = "light") -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        one = Opened(context.new_page())
        own = file.as_uri()

        def asked(route: Any) -> None:
            if route.request.url.split("#")[0] == own:
                route.continue_()
            else:
                one.faults.append(f"asked for {route.request.url}")
                route.abort()

        context.route("**/*", asked)
        one.page.on("console", lambda message: one.faults.append(f"console: {message.type}: {message.text}"))
        one.page.on("pageerror", lambda error: one.faults.append(f"error: {error}"))
        one.page.goto(own)
        opened.append(one)
        return one

    yield show_
    faults = [fault for one in opened for fault in one.faults]
    for one in opened:
        one.page.context.close()
    assert not faults


@pytest.fixture(scope="session")
def report_html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of four models, each with another answer or other times."""
    from relaxgrad.reports.feasibility.html import html
    from tests.reports.feasibility.records import crashes, falls_back, report, timed, trains

    folder = tmp_path_factory.mktemp("report")
    bench = [timed("mlp", 1.2), timed("transformer-encoder", 3.0), timed("qr", 0.8)]
    bench[1]["candidates"]["inductor"] |= {"status": "wrong", "reason": "loss: error too large", "step": None}
    del bench[1]["ratios"]["inductor"]
    found = report(folder, [trains(), trains("transformer-encoder"), falls_back(), crashes()], bench)
    found.models[1].parameters = 84_992
    (folder / "report.html").write_text(html(found), encoding="utf-8")
    return folder / "report.html"


@pytest.fixture(scope="session")
def explain_html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of `relaxgrad explain seed-example`; made by one of the workers of a run for all of them."""
    from relaxgrad.coverage.harness.models import load_problem
    from relaxgrad.reports.explain.page import page
    from relaxgrad.reports.explain.stages import stages

    base = tmp_path_factory.getbasetemp()
    folder = base.parent if (base.parent.name.startswith("pytest-")) and base.name.startswith("popen-") else base
    file = folder / "explain.html"
    with FileLock(folder / "explain.lock"):
        if not file.exists():
            file.write_text(page("seed-example", stages(lambda: load_problem("seed-example"))), encoding="utf-8")
    return file
