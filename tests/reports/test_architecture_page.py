# SPDX-License-Identifier: Apache-2.0
"""docs/architecture.md: what the sources import, drawn without what follows from other arrows."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxgrad.bridge.errors import UserError
from relaxgrad.reports import architecture_page

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_sources_make_of_it() -> None:
    again = "python -m relaxgrad.reports.architecture_page"
    assert (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8") == architecture_page.page(ROOT), again


def write(root: Path, files: dict[str, str]) -> None:
    for name, code in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""What {path.stem} is. More."""\n{code}\n')


def test_rooms_come_after_what_they_import(tmp_path: Path) -> None:
    files = {
        "bridge/a.py": "from .b import x\nfrom .c.inner import y",
        "bridge/b.py": "def late():\n    from .c import z",
        "bridge/c/inner.py": "",
        "bridge/c/__init__.py": "from . import inner",
    }
    write(tmp_path, files)
    found = architecture_page.rooms(tmp_path, "bridge")
    assert [(room.path, room.about) for room in found] == [
        ("bridge/c/", "What __init__ is"), ("bridge/b.py", "What b is"), ("bridge/a.py", "What a is"),
    ]  # fmt: skip
    assert architecture_page.needed(found) == [("bridge/b.py", "bridge/c/"), ("bridge/a.py", "bridge/b.py")]


def test_a_circle_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"bridge/a.py": "from . import b", "bridge/b.py": "import relaxgrad.bridge.a", "bridge/c.py": ""})
    with pytest.raises(UserError, match=r"in a circle: bridge/a\.py, bridge/b\.py$"):
        architecture_page.rooms(tmp_path, "bridge")
