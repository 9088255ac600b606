# SPDX-License-Identifier: Apache-2.0
"""How the help of every command reads: flags without a type, paragraphs that fill the terminal."""

from __future__ import annotations

import inspect
import re
from typing import Any


def tidied(command: Any) -> Any:
    """The command with its help made ready to show, its subcommands' too.

    A flag takes no value, so no type is shown beside it. The line breaks of a docstring are those of 120 columns:
    inside a paragraph they become spaces, and the terminal's width decides.
    """
    if command.help:
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.help))
    shown = command.get_help_option(command.context_class(command))  # made once a command, and kept
    for param in (*command.params, *((shown,) if shown is not None else ())):
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        tidied(inner)
    return command
