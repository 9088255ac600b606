# SPDX-License-Identifier: Apache-2.0
"""Blocker 5, maintenance: what the bridge is made of, how old its parts are, and what upstream gets wrong."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from ..harness.records import versions
from ..upstream.runner import STORED, Found
from .finding import Blocker, Evidence, Finding, Level

BRIDGE = Path(__file__).resolve().parents[2] / "bridge"


def measure(upstream: Path = STORED) -> Finding:
    """The finding on this installation. `upstream`: the stored outcomes of the scripts of coverage/upstream."""
    numbers: dict[str, Any] = {"versions": versions(), "bridge": bridge_size()}
    evidence = []
    headline = (
        f"the bridge is {numbers['bridge']['lines']:,} lines in {numbers['bridge']['files']} files, "
        f"{numbers['bridge']['converters']} converters, on {_named(numbers['versions'])}"
    )
    if upstream.exists():
        found = json.loads(upstream.read_text())
        shown = [bug for bug in found["known_bugs"] if bug["outcome"] == Found.REPRODUCED]
        numbers["known_bugs"] = {"tried": len(found["known_bugs"]), "reproduced": len(shown)}
        numbers["known_bugs_measured_with"] = found["versions"]
        evidence = [Evidence(bug["title"], f"coverage/upstream/known_bugs/{bug['name']}.py") for bug in shown]
        headline += f"; {len(shown)} known bugs of TVM worked around or avoided, each with a script"
    return Finding(Blocker.MAINTENANCE, Level.WORKED_AROUND, headline, numbers, evidence)


def _named(found: dict[str, str | None]) -> str:
    return " and ".join(f"{name} {found[name]}" for name in ("torch", "apache-tvm"))


def bridge_size(folder: Path = BRIDGE) -> dict[str, int]:
    """Files, lines of code (no blank, comment or docstring line) and converters of the bridge."""
    from relaxgrad.bridge.importer.registry import registry

    files = sorted(folder.rglob("*.py"))
    return {"files": len(files), "lines": sum(code_lines(f.read_text()) for f in files), "converters": len(registry())}


def code_lines(source: str) -> int:
    """Lines that hold code: a docstring is none."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    strings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            strings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and n not in strings for n, line in lines)
