# SPDX-License-Identifier: Apache-2.0
"""Files of the measurements: written whole or not at all, and valid JSON whatever was measured."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relaxgrad.bridge import __version__
from relaxgrad.bridge.errors import UserError
from relaxgrad.bridge.files import write_whole

ROW = 240  # characters of a line of what is stored; what is longer takes a line for each of its parts
DIGITS = 9  # of a float that is stored: with fewer, one that a table shows could be rounded twice

#: What the path through ONNX is made of, beside what `versions` tells anyway.
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def plain(value: Any) -> Any:
    """`value` with NaN and infinity as null, which JSON has no numbers for, and tuples as lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def check_writable(path: Path) -> None:
    """Raises UserError when `path` cannot be written: better before an hour of measuring than after it."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file")
    folder = path.parent
    if not folder.is_dir():
        raise UserError(f"cannot write {path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise UserError(f"cannot write {path}: no permission to write in {folder}")


def write_json(path: Path, value: Any) -> None:
    """`write_text` of `value` as JSON."""
    write_text(path, json.dumps(plain(value), indent=2, allow_nan=False) + "\n")


def write_rows(path: Path, value: Any) -> None:
    """`write_text` of `value` as JSON that the repository keeps: a row a line, so that a diff shows what changed."""
    write_text(path, _rows(_rounded(plain(value)), 0) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _rows(value: Any, depth: int) -> str:
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not isinstance(value, dict | list) or not value or depth + len(line) <= ROW:
        return line
    inner, outer = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, list):
        return f"[{inner}{f',{inner}'.join(_rows(item, depth + 1) for item in value)}{outer}]"
    parts = (f"{json.dumps(key)}: {_rows(item, depth + 1)}" for key, item in value.items())
    return f"{{{inner}{f',{inner}'.join(parts)}{outer}}}"


def write_text(path: Path, text: str) -> None:
    """`write_bytes` of `text` as UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file that is whole or not there. Raises UserError as `check_writable`."""
    check_writable(path)
    write_whole(path, content)


def versions(more: Sequence[str] = ()) -> dict[str, str | None]:
    """What was measured with, and the packages `more`; None for one that is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {"python": platform.python_version(), "relaxgrad": __version__}
    for package in ("torch", "apache-tvm", "transformers", *more):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
