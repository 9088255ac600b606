# SPDX-License-Identifier: Apache-2.0
"""docs/architecture.md: the rooms of the code, what each is for, and which imports which, read out of the sources."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.harness.records import write_text

from .markdown import cell, table

FOLDERS = ("bridge", "coverage", "benchmarks", "reports", "cli")  # each may import those before it
#: Folders of the bridge whose inside is drawn too.
INSIDES = ("bridge", "bridge/importer", "bridge/compile", "bridge/devices/cpu")


@dataclass(frozen=True)
class Import:
    """One imported module; `from a import b` counts as `a.b`, which is a module or a name in one."""

    target: str
    line: int
    at_run_time: bool  # False under `if TYPE_CHECKING:`


def module_name(path: Path) -> str:
    """Dotted name, as it is installed, of a source file with a path relative to the checkout."""
    parts = path.with_suffix("").parts
    return ".".join(("relaxgrad", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[Import]:
    """Every import of a module's source, those inside functions too, relative ones made absolute."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    only_typing = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for statement in node.body
        for child in ast.walk(statement)
    }
    for node in ast.walk(tree):
        at_run_time = id(node) not in only_typing
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, at_run_time)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            for alias in node.names:
                yield Import(f"{prefix}.{alias.name}", node.lineno, at_run_time)


def imports_of(path: Path, root: Path) -> list[Import]:
    """Every import of a source file of the checkout at `root`."""
    return list(imports(ast.parse(path.read_text()), module_name(path.relative_to(root)), path.name == "__init__.py"))


@dataclass(frozen=True)
class Room:
    """A file, or a folder with all that is in it."""

    path: str  # relative to the checkout, a folder's with a slash at its end
    about: str  # first sentence of its docstring
    imports: frozenset[str]  # paths of the rooms beside it


def rooms(root: Path, folder: str) -> list[Room]:
    """What lies in a folder, without what is too small to hold code. Each comes after all that it imports.

    Raises UserError for rooms that import each other in a circle, naming them.
    """
    found = {}
    for path in sorted((root / folder).iterdir()):
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        if path.name == "__init__.py" or path.suffix not in ("", ".py") or not files:
            continue
        found[f"{folder}/{path.name}{'/' if path.is_dir() else ''}"] = files
    made = {}
    for name, files in found.items():
        targets = {
            entry.target.removeprefix("relaxgrad.").replace(".", "/")
            for file in files
            for entry in imports_of(file, root)
        }
        beside = {other for other in found if other != name and any(_is_in(target, other) for target in targets)}
        made[name] = Room(name, _about(root / name), frozenset(beside))
    return _ordered(made)


def _is_in(target: str, room: str) -> bool:
    return f"{target}/".startswith(f"{room.removesuffix('.py').removesuffix('/')}/")


def _about(path: Path) -> str:
    """The first sentence of the docstring of a file, or of a folder's `__init__.py`."""
    first = path / "__init__.py" if path.is_dir() else path
    text = ast.get_docstring(ast.parse(first.read_text())) if first.exists() else ""
    return " ".join((text or "").split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def _ordered(found: dict[str, Room]) -> list[Room]:
    done: dict[str, Room] = {}
    while len(done) < len(found):
        free = [room for name, room in found.items() if name not in done and room.imports <= done.keys()]
        if not free:
            raise UserError(f"these import each other in a circle: {', '.join(sorted(found.keys() - done.keys()))}")
        done |= {room.path: room for room in free}
    return list(done.values())


def needed(found: list[Room]) -> list[tuple[str, str]]:
    """The arrows to draw: importing room, imported room; without those that follow from others."""
    below: dict[str, set[str]] = {}
    arrows = []
    for room in found:
        through = set().union(*(below[other] for other in room.imports))
        below[room.path] = through | room.imports
        arrows += [(room.path, other) for other in sorted(room.imports - through)]
    return arrows


def _drawing(found: list[Room], folder: str) -> str:
    number = {room.path: f"r{k}" for k, room in enumerate(found)}
    boxes = [f'    {number[r.path]}["{r.path.removeprefix(folder + "/")}"]' for r in reversed(found)]
    arrows = [f"    {number[a]} --> {number[b]}" for a, b in needed(found)]
    return "\n".join(["```mermaid", "flowchart TD", *boxes, *arrows, "```"])


def page(root: Path) -> str:
    """The text of the page."""
    parts = [
        "# The house\n",
        "Made by `python -m relaxgrad.reports.architecture_page` from the imports in the sources. An arrow says that",
        "one imports the other; arrows that follow from others are left out. All arrows point down: there is no circle",
        "and no arrow back up (`tests/test_layering.py`). A device is found by its folder and imported by nothing.",
    ]
    for folder in INSIDES:
        found = rooms(root, folder)
        rows = [(f"`{room.path.removeprefix(folder + '/')}`", cell(room.about)) for room in reversed(found)]
        parts += [
            f"\n## {folder}/\n",
            _drawing(found, folder),
            "",
            table(rows, ("room", "what it is"), ("left", "left")),
        ]
    return "\n".join(parts).rstrip() + "\n"


def main(root: Path) -> int:
    """Writes the page below `root`/docs; 0."""
    write_text(root / "docs" / "architecture.md", page(root))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
