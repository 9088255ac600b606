# SPDX-License-Identifier: Apache-2.0
"""Exceptions of the bridge. Each message says what was wrong, where, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from .kinds import Reason


class RelaxgradError(Exception):
    """Base of the project's own exceptions."""


class UserError(RelaxgradError):
    """Bad input from the user: shown as one line, exit code 2."""


class CompilerDied(RelaxgradError):
    """TVM ended the process that compiled a graph; the message says how."""


class UnsupportedOps(RelaxgradError):
    """Raised under `fallback="error"`: lists every node of the graph that has no native or library lowering."""

    def __init__(self, reasons: Sequence[Reason]):
        self.reasons = tuple(reasons)
        lines = "\n".join(f"  {reason}" for reason in self.reasons)
        count = len(self.reasons)
        super().__init__(
            f"{count} op{'s' if count != 1 else ''} of this graph would fall back to ATen:\n{lines}\n"
            'Compile with options={"fallback": "aten"} (the default) to run them in ATen inside the compiled graph.'
        )


def last_line(error: BaseException) -> str:
    """The last line of an exception's message: TVM puts its stack before it."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
