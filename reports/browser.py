# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, for pictures of pages and for tests of them; playwright drives it."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from relaxgrad.bridge.errors import UserError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
#: No sandbox: as root, in a container, Chromium has none. The rest keeps it from calling home.
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def missing() -> str:
    """What is not installed and how to get it; empty where nothing is missing."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: pip install 'relaxgrad[browser]'"
    if executable() is None:
        return (
            f"no Chromium on the PATH (looked for {', '.join(NAMES)}): apt-get install chromium, or as your system does"
        )
    return ""


def executable() -> str | None:
    """The path of a Chromium."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium. Raises UserError where there is none."""
    if reason := missing():
        raise UserError(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=executable(), args=list(ARGUMENTS))
        try:
            yield found
        finally:
            found.close()
