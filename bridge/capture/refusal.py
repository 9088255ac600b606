# SPDX-License-Identifier: Apache-2.0
"""What to tell the user when a module cannot be captured."""

from __future__ import annotations

import os
import sysconfig
import traceback

from torch import nn
from torch.nn.parameter import is_lazy

from .. import torch_api
from ..errors import UserError
from ..kinds import SourceLine
from .source import is_internal

_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep


def refuse_lazy(module: nn.Module) -> None:
    """Raises UserError for a module whose parameters get their shapes at the first call (`nn.LazyLinear`)."""
    for name, parameter in module.named_parameters():
        if is_lazy(parameter):
            raise UserError(
                f"parameter {name} of {type(module).__name__} has no shape yet (a lazy layer); "
                "run the module once in plain PyTorch before capturing it"
            )


def refusal(error: BaseException, module: nn.Module, how: str) -> UserError:
    """One line: what happened in `module`'s forward, at which line of the user's, and what to do next.

    `how` is what was tried, as "as one graph". A UserError comes back as it is.
    """
    if isinstance(error, UserError):
        return error
    name = type(module).__name__
    where = f" at {line}" if (line := raised_at(error)) else ""
    cause = torch_api.root_cause(error)
    if isinstance(cause, torch_api.data_dependent_errors()):
        return UserError(
            f"{name} cannot be captured {how}: control flow or a shape depends on the values of a tensor{where} "
            f"({_first_line(cause)}); take that decision outside forward, or write it with torch.where or torch.cond"
        )
    return UserError(
        f"{name} cannot be captured {how}: forward raised {type(cause).__name__}{where}: {_first_line(cause)}; "
        "check that the module and its loss run in plain PyTorch with these example inputs"
    )


def raised_at(error: BaseException) -> SourceLine | None:
    """The innermost line of the user's own code in an exception's traceback, or in those of its causes."""
    current: BaseException | None = error
    seen: list[BaseException] = []
    while current is not None and current not in seen:
        seen.append(current)
        # Dynamo interprets the user's code, so its frames are not in the traceback: it keeps them itself.
        for stack in (getattr(current, "real_stack", None), traceback.extract_tb(current.__traceback__)):
            for frame in reversed(stack or ()):
                if _is_users(frame.filename):
                    return SourceLine(frame.filename, frame.lineno or 0, frame.line or "")
        current = current.__cause__ or current.__context__
    return None


def _is_users(file: str) -> bool:
    packages = ("site-packages" + os.sep + "sympy" + os.sep, "site-packages" + os.sep + "typer" + os.sep)
    if file.startswith("<") or is_internal(file) or any(package in file for package in packages):
        return False
    return not file.startswith(_STANDARD_LIBRARY) or "site-packages" in file


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else "no message"
