# SPDX-License-Identifier: Apache-2.0
"""The page of `relaxgrad explain` in a browser: stages light up together, and links lead to what they name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.reports.browser.conftest import Open
from tests.reports.browser.looks import faint, shown, sticking_out

LIT = """() => [...document.querySelectorAll(".lit")].map((part) => part.id)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_it_fits_and_can_be_read_without_network(show: Open, explain_html: Path, width: int, scheme: str) -> None:
    opened = show(explain_html, width, scheme)
    for part in opened.page.locator("details").all():
        part.evaluate("part => part.open = true")
    assert opened.sized() == (width, width)
    assert not sticking_out(opened.page)
    opened.page.locator("#joint-threshold_backward").click(position={"x": 4, "y": 4})
    assert not faint(opened.page)
    assert not sticking_out(opened.page)


def test_pointing_at_a_backward_node_lights_what_it_belongs_to(show: Open, explain_html: Path) -> None:
    page = show(explain_html).page
    page.locator("#joint-threshold_backward .call").hover()
    lit = set(page.evaluate(LIT))
    line = page.locator("pre .line")
    assert {
        "joint-relu", "joint-threshold_backward", "decomposed-0", "forward-relu", "backward-where",
        "fusion-forward-fused_add_relu_alias_alias_le", "kernel-forward-fused_add_relu_alias_alias_le",
        "kernel-backward-fused_scalar_tensor_where",
        line.get_attribute("id"),
    } <= lit  # fmt: skip
    assert not {"joint-mm", "joint-mm_1", "forward-mm", "backward-sum_1", "kernel-forward-mm"} & lit
    assert line.inner_text().strip() == "return torch.relu(x @ self.w + self.b)"
    page.locator("h1").hover()
    assert page.evaluate(LIT) == []


def test_a_click_keeps_the_light_and_says_where_it_shines(show: Open, explain_html: Path) -> None:
    page = show(explain_html).page
    where = page.locator("#where")
    assert not where.is_visible()
    page.locator("#backward-sum_1 .node").click()
    page.locator("h1").hover()
    assert "joint-add" in page.evaluate(LIT)
    assert where.locator("dt").all_inner_texts() == [
        "1. The model", "3. The joint graph", "5. Forward and backward", "7. What fuses into one kernel", "8. Kernels",
    ]  # fmt: skip
    places = where.locator("dd").nth(1).locator("a")
    assert places.all_inner_texts() == ["add", "sum_1", "view"]
    where.get_by_role("link", name="forward: fused_add_relu_alias_alias_le (native), TIR").click()
    kernel = page.locator("#kernel-forward-fused_add_relu_alias_alias_le")
    assert kernel.get_attribute("open") is not None
    assert kernel.evaluate("p => p.getBoundingClientRect().top < innerHeight && p.getBoundingClientRect().bottom > 0")
    page.keyboard.press("Escape")
    assert not where.is_visible()
    page.locator("h1").hover()
    assert page.evaluate(LIT) == []
    page.locator("#joint-relu .node").click()
    where.get_by_role("button").click()
    assert not where.is_visible()


def test_every_link_of_a_table_leads_to_what_it_names(show: Open, explain_html: Path) -> None:
    page = show(explain_html).page
    links = page.evaluate("""() => [...document.querySelectorAll("td a")].map((link) => {
        const target = document.getElementById(decodeURIComponent(link.hash.slice(1)));
        const cell = link.closest("td");
        const name = target.tagName === "TR" ? target.cells[0].textContent
                   : target.tagName === "DETAILS" ? target.querySelector("summary").textContent : target.textContent;
        return [cell.className, link.textContent, name.trim(), target.id];
    })""")
    assert {kind for kind, *_ in links} == {"name", "node", "line", "kernel", "differentiates", "which"}
    for kind, text, name, target in links:
        if kind == "line":
            assert f"({name})" in text
        elif target.startswith("kernel-"):
            assert f": {text} (" in name
        else:
            assert text == name
    differentiated = [text for kind, text, *_ in links if kind == "differentiates"]
    assert differentiated == ["relu"] * 3 + ["add"] * 2 + ["mm"] * 2 + ["relu"] * 2 + ["add"] * 2 + ["mm"]


def test_following_a_node_to_its_forward_node_its_kernel_and_its_line(show: Open, explain_html: Path) -> None:
    page = show(explain_html).page

    def arrived() -> Any:
        return page.evaluate("""() => {
            const part = document.querySelector(":target"), box = part.getBoundingClientRect();
            return [part.id, box.top >= 0 && box.top < innerHeight, part.open ?? null];
        }""")

    page.locator("#joint-threshold_backward .differentiates a").click()
    assert arrived() == ["joint-relu", True, None]
    page.locator("#backward-where .kernel a").click()
    assert arrived() == ["kernel-backward-fused_scalar_tensor_where", True, True]
    page.locator("#backward-mm_1 .line a").click()
    id_, seen, _ = arrived()
    assert id_.startswith("line-")
    assert seen
    page.locator("pre a", has_text="relu").first.click()  # in Relax as it was translated
    assert arrived() == ["forward-relu", True, None]
    for stage in page.locator("nav a").all():
        stage.click()
        assert page.evaluate("document.querySelector(':target').getBoundingClientRect().top") < 900


def test_what_was_folded_opens_for_a_link_into_it(show: Open, explain_html: Path) -> None:
    page = show(explain_html).page
    page.locator("details:has(> pre .line)").evaluate("part => part.open = false")
    page.locator("#joint-mm .line a").click()
    assert page.locator("pre .line").is_visible()


def test_paper_has_no_controls_and_cuts_nothing(show: Open, explain_html: Path) -> None:
    page = show(explain_html, 703).page
    page.locator("#joint-relu .node").click()
    page.emulate_media(media="print", color_scheme="dark")
    assert shown(page, "nav, #where") == []
    assert not sticking_out(page)
    cut = "parts => parts.filter((part) => part.scrollWidth > part.clientWidth + 1).length"
    assert page.locator("details[open] > pre").evaluate_all(cut) == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
