# SPDX-License-Identifier: Apache-2.0
"""Source lines as pages show them: `file:line (code)` with a path that is no longer than it must be."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_PATH = re.compile(r"(/[^\n:]+):\d+")  # an absolute path and a line, at the start of a source line
_SITE = "/site-packages/"


class Near:
    """Shortens the paths of source lines: to below site-packages, or to below the folder that all others share."""

    def __init__(self, sources: Iterable[str]):
        matches = (_PATH.match(source) for source in sources)
        folders = {os.path.dirname(match[1]) for match in matches if match and _SITE not in match[1]}
        self.shared = os.path.commonpath(folders).rstrip("/") + "/" if folders else ""

    def __call__(self, source: str) -> str:
        """The line, shortened; what is no source line stays as it is."""
        match = _PATH.match(source)
        if match is None:
            return source
        return match[1].rpartition(_SITE)[2].removeprefix(self.shared) + source[match.end(1) :]


def in_file(source: str) -> str:
    """A source line with no more than the name of its file; what is no source line stays as it is."""
    match = _PATH.match(source)
    return source if match is None else os.path.basename(match[1]) + source[match.end(1) :]
