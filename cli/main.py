# SPDX-License-Identifier: Apache-2.0
"""The command line: one typer app, one module per command, and one place where errors become exit codes.

Exit codes: 0 done, 1 failed or the thing measured fell short, 2 bad usage, 130 interrupted. Command modules import
torch and TVM inside their `command` function only, so that `relaxgrad --help` is instant.
"""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from typing import Annotated

import typer

from relaxgrad.bridge import __version__
from relaxgrad.bridge.errors import RelaxgradError, UserError

from . import audit, bench, cache, capture, compile, doctor, explain, replay, report, train
from .help_text import tidied

app = typer.Typer(
    name="relaxgrad",
    help="Train PyTorch models through Apache TVM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("train")(train.command)
app.command("capture")(capture.command)
app.command("compile")(compile.command)
app.command("explain")(explain.command)
app.command("replay")(replay.command)
app.command("doctor")(doctor.command)
app.command("audit")(audit.command)
app.command("bench")(bench.command)
app.add_typer(cache.app, name="cache")
app.add_typer(report.app, name="report")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"relaxgrad {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. May stand after the command too.")
    ] = False,
) -> None:
    """The options before the command; `main` has taken `--debug` out of the arguments already."""


def _take_debug(arguments: list[str]) -> tuple[list[str], bool]:
    """The arguments without `--debug`, which may stand anywhere before a bare `--`, and whether it was there."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [a for a in arguments[:end] if a != "--debug"]
    return options + arguments[end:], len(options) < end


def _one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def _usage_line(error: Exception) -> str | None:
    """One line for an error of the command line itself (unknown option, missing argument), None for any other.

    Told by its methods: some releases of typer bring their own copy of click, and the classes differ.
    """
    message = getattr(error, "format_message", None)
    if message is None or not hasattr(error, "exit_code"):
        return None
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "relaxgrad"
    text = message()
    if option := getattr(error, "option_name", None):  # click's own suggestions share little more than the dashes
        known = [name for param in context.command.params for name in param.opts] if context is not None else []
        near = difflib.get_close_matches(option, known, n=1, cutoff=0.75)
        text = f"no such option: {option}" + (f"; did you mean {near[0]}?" if near else _commands_with(option))
    return f"{_one_line(text).rstrip('.')} (see `{where} --help`)"


def _commands_with(option: str) -> str:
    """Which commands have the option, where some do."""
    commands = getattr(typer.main.get_command(app), "commands", {})
    having = [name for name, command in commands.items() if any(option in param.opts for param in command.params)]
    named = " and ".join(f"`relaxgrad {name}`" for name in having)
    return {1: f"; {named} has it", 2: f"; {named} have it"}.get(len(having), "")  # of many, none is meant


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit code. `arguments` defaults to the process's own."""
    rest, debug = _take_debug(list(sys.argv[1:] if arguments is None else arguments))
    try:
        command = tidied(typer.main.get_command(app))
        result = command.main(args=rest or ["--help"], prog_name="relaxgrad", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", 130, debug)
    except BrokenPipeError:
        # The reader went away (`relaxgrad ... | head`). Python flushes stdout once more at exit: give it a sink.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except UserError as error:
        return _complain(_one_line(str(error)), 2, debug)
    except RelaxgradError as error:
        return _complain(str(error), 1, debug)
    except Exception as error:
        usage = _usage_line(error)
        if usage is not None:
            return _complain(usage, 2, debug)
        lines = str(error).strip().splitlines() or ["no message"]
        hint = "" if debug else "; run with --debug for the traceback"
        return _complain(f"{type(error).__name__}: {lines[0]}{hint}", 1, debug)


def _complain(message: str, code: int, debug: bool) -> int:
    """One line on stderr, after the traceback of the error being handled if `debug`."""
    if debug:
        traceback.print_exc()
    print(f"relaxgrad: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
