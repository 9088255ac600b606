# SPDX-License-Identifier: Apache-2.0
"""What a person sees of a page, measured: text that sticks out or that can hardly be read."""

from __future__ import annotations

from typing import Any

#: The elements with text of their own that reach beyond the window, but for what a box around them scrolls or clips.
STICKING_OUT = """() => {
  const width = document.documentElement.clientWidth, found = [];
  for (const part of document.body.querySelectorAll("*")) {
    const box = part.getBoundingClientRect();
    if (!box.width || !box.height || (box.right <= width + 1 && box.left >= -1)) continue;
    let held = false;
    for (let up = part.parentElement; up; up = up.parentElement)
      held ||= ["auto", "scroll", "hidden"].includes(getComputedStyle(up).overflowX);
    if (!held) found.push(`${part.tagName} ${part.className}: ${part.textContent.trim().slice(0, 40)}`);
  }
  return found;
}"""

#: Text whose contrast with what is painted behind it is below 4.5 to 1 (WCAG 2.1, 1.4.3), with the ratio.
FAINT = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const over = (colour, below) => {  // colour painted on an opaque one
    canvas.fillStyle = `rgb(${below.join(",")})`;
    canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const behind = (part) => {
    const chain = [];
    for (let up = part; up; up = up.parentElement) chain.unshift(getComputedStyle(up).backgroundColor);
    return chain.reduce((below, colour) => over(colour, below), [255, 255, 255]);
  };
  const light = (rgb) => rgb.map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const found = [];
  for (const part of document.body.querySelectorAll("*")) {
    const own = [...part.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.textContent.trim());
    if (!own || ["SCRIPT", "STYLE"].includes(part.tagName) || !part.getClientRects().length) continue;
    let opacity = 1;
    for (let up = part; up; up = up.parentElement) opacity *= Number(getComputedStyle(up).opacity);
    const below = behind(part), text = over(getComputedStyle(part).color, below);
    const seen = text.map((c, i) => c * opacity + below[i] * (1 - opacity));
    const [a, b] = [light(seen), light(below)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5)
      found.push(`${ratio.toFixed(2)} ${part.tagName} ${part.className}: ${part.textContent.trim().slice(0, 40)}`);
  }
  return found;
}"""

#: The parts of the page, of those that a selector names, that are shown.
SHOWN = """selector => [...document.querySelectorAll(selector)].filter((p) => p.getClientRects().length)
  .map((p) => p.dataset.name || p.id || p.textContent.trim())"""


def sticking_out(page: Any) -> list[str]:
    return page.evaluate(STICKING_OUT)


def faint(page: Any) -> list[str]:
    return page.evaluate(FAINT)


def shown(page: Any, selector: str) -> list[str]:
    return page.evaluate(SHOWN, selector)
