# SPDX-License-Identifier: Apache-2.0
"""What `torch.compile(model, backend="relaxgrad", options={...})` takes; backend.py says what each option does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import UserError
from .targets import AUTO

#: The options and the values that each takes; the first is the default.
OPTIONS = {
    "fallback": ("aten", "error"),
    "target": (AUTO,),
    "on_compile_error": ("aten", "raise"),
    "cache": ("on", "off"),
    "compile_in": ("child", "here"),
}


@dataclass(frozen=True)
class BackendOptions:
    """What `torch.compile(model, backend="relaxgrad", options={...})` takes."""

    fallback: str = "aten"
    target: str = AUTO
    on_compile_error: str = "aten"
    cache: str = "on"
    compile_in: str = "child"


DEFAULTS = BackendOptions()


def parse_options(options: Mapping[str, Any] | None) -> BackendOptions:
    given = dict(options or {})
    for name, value in given.items():
        if name not in OPTIONS:
            raise UserError(f"unknown option {name!r} for backend relaxgrad; known: {', '.join(OPTIONS)}")
        if name != "target" and value not in OPTIONS[name]:
            raise UserError(f"option {name}={value!r} is unknown; use one of {', '.join(OPTIONS[name])}")
    return BackendOptions(**given)
