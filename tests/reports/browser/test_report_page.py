# SPDX-License-Identifier: Apache-2.0
"""report.html in a browser: it needs nothing else, sorts, filters, fits a phone and paper, and can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.reports.browser.conftest import Open
from tests.reports.browser.looks import faint, shown, sticking_out

MODELS = ["mlp", "transformer-encoder", "qr", "gpt"]
PAPER = 703  # CSS pixels of a line on A4 between margins of 12 mm


def columns(page: Any) -> list[str]:
    return page.locator("table.sortable thead tr:last-child th").all_inner_texts()


def order(page: Any) -> list[str]:
    return page.locator("table.sortable tbody tr td:first-child").all_inner_texts()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_it_fits_and_can_be_read_without_network(show: Open, report_html: Path, width: int, scheme: str) -> None:
    opened = show(report_html, width, scheme)
    page = opened.page
    for part in page.locator("details").all():
        part.evaluate("part => part.open = true")
    assert opened.sized() == (width, width)
    assert not sticking_out(page)
    assert not faint(page)
    table = page.locator("table.sortable").evaluate("t => [t.scrollWidth, t.parentElement.clientWidth]")
    assert table[0] <= table[1]
    assert page.title() == "Can it train on TVM? For some models"


def test_a_dark_page_is_dark(show: Open, report_html: Path) -> None:
    colours = [
        show(report_html, 1400, scheme).page.evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert colours == ["rgb(255, 255, 255)", "rgb(15, 19, 24)"]


def test_the_verdict_is_what_one_sees_first(show: Open, report_html: Path) -> None:
    for width in (400, 1400):
        page = show(report_html, width).page
        box = page.locator(".verdict b").bounding_box()
        assert page.locator(".verdict b").inner_text() == "For some models."
        assert box["y"] + box["height"] < 250


def test_it_sorts_by_each_column(show: Open, report_html: Path) -> None:
    page = show(report_html).page
    expected = {  # ascending; what has no value is last both ways
        "model": ["gpt", "mlp", "qr", "transformer-encoder"],
        "parameters": ["gpt", "qr", "mlp", "transformer-encoder"],
    }
    assert len(columns(page)) == 15
    for number, name in enumerate(columns(page)):
        heading = page.locator("table.sortable thead tr:last-child th").nth(number)
        cells = page.locator(f"table.sortable tbody tr td:nth-child({number + 1})")
        for direction in ("ascending", "descending"):
            heading.locator("button").click()
            assert heading.get_attribute("aria-sort") == direction
            assert page.locator("th[aria-sort]").count() == 1
            found = cells.evaluate_all("cells => cells.map(c => c.dataset.value ?? c.textContent.trim())")
            values = [v for v in found if v != ""]
            assert found == values + [""] * (len(found) - len(values))
            keys = [v if number == 0 else float(v) for v in values]
            assert keys == sorted(keys, reverse=direction == "descending")
            if direction == "ascending" and name in expected:
                assert order(page) == expected[name]
    page.locator("table.sortable thead tr:last-child th").nth(1).locator("button").click()  # "trains"
    assert order(page)[2:] == ["qr", "gpt"]  # partly, no
    page.locator("table.sortable thead tr:last-child th").last.locator("button").click(click_count=2)
    times = page.locator("table.sortable tbody tr td:last-child").all_inner_texts()
    assert times == ["3.00", "1.20", "0.80", "-"]  # the last column: times as fast as eager


def test_it_sorts_from_the_keyboard(show: Open, report_html: Path) -> None:
    page = show(report_html).page
    page.locator("#filter").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert order(page)[0] == "gpt"


def test_it_filters_the_table_the_charts_and_the_sections(show: Open, report_html: Path) -> None:
    page = show(report_html).page
    parts = ("table.sortable tbody tr", "table.heat tbody tr", ".shares .row:not(.axis)", "details.model")

    def seen() -> list[list[str]]:
        return [[name.removeprefix("model-") for name in shown(page, part)] for part in parts]

    assert seen() == [MODELS] * 4
    for typed, expected in (
        ("TEXT", ["qr", "gpt"]),
        ("text partly", ["qr"]),
        ("worked", ["qr"]),
        ("tiny yes", MODELS[:2]),
    ):
        page.locator("#filter").fill(typed)
        assert seen() == [expected] * 4
        assert page.locator("#shown").inner_text() == f"{len(expected)} of 4 models"
    page.locator("#filter").fill("nonsense")
    assert seen() == [[]] * 4
    assert page.get_by_text("No model matches.").is_visible()
    page.locator("#filter").fill("")
    assert seen() == [MODELS] * 4
    assert not page.get_by_text("No model matches.").is_visible()


def test_a_link_to_a_model_opens_its_section(show: Open, report_html: Path) -> None:
    page = show(report_html).page
    section = page.locator("#model-qr")
    assert section.get_attribute("open") is None
    assert page.locator("#model-gpt").get_attribute("open") is not None  # it does not train: open from the start
    page.locator("table.sortable tbody a", has_text="qr").click()
    assert section.get_attribute("open") is not None
    assert page.get_by_text("model.py:7 (return torch.linalg.qr(x)[1])").first.is_visible()
    section.evaluate("part => part.open = false")
    page.locator("table.sortable tbody a", has_text="qr").click()  # the address is the same as before
    assert section.get_attribute("open") is not None


def test_bars_of_the_charts_are_as_long_as_the_numbers_say(show: Open, report_html: Path) -> None:
    page = show(report_html).page
    track = page.locator(".shares [data-name=mlp] .track").bounding_box()
    native = page.locator(".shares [data-name=mlp] .bar.native").bounding_box()
    assert native["width"] == pytest.approx(0.75 * track["width"], abs=1)
    first = {
        css: page.locator(f"section:has(#start) [data-name=mlp] .bar.{css}").bounding_box()["width"]
        for css in ("own", "other-0")
    }
    assert first["other-0"] == pytest.approx(4 * first["own"], rel=0.02)  # 8 s and 2 s


def test_paper_has_every_section_and_no_controls(show: Open, report_html: Path) -> None:
    page = show(report_html, PAPER, "dark").page
    page.evaluate("""() => {
        window.atPrint = null;
        window.addEventListener("beforeprint", () => {
            window.atPrint = [...document.querySelectorAll("details")].every((part) => part.open);
        });
    }""")
    assert page.pdf(format="A4")[:5] == b"%PDF-"
    assert page.evaluate("window.atPrint") is True
    assert page.locator("#model-mlp").get_attribute("open") is None  # as it was before
    page.emulate_media(media="print", color_scheme="dark")
    for part in page.locator("details").all():
        part.evaluate("part => part.open = true")
    for control in ("nav", "#filter", "#shown"):
        assert not page.locator(control).is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not sticking_out(page)
    assert not faint(page)
    assert page.locator("table.sortable").evaluate("t => t.scrollWidth <= t.parentElement.clientWidth")
