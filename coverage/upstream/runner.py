# SPDX-License-Identifier: Apache-2.0
"""Runs the scripts of known_bugs/, each in a process of its own, and says which bugs of TVM are still there.

A script prints `expected: ...`, then `seen: ...`; where the bug kills the process, the first line alone. Its
docstring is the issue to file: the first line the title, the rest the text.
"""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from relaxgrad.bridge.errors import UserError

from ..harness.process import STEADY_THREADS
from ..harness.records import versions

KNOWN_BUGS = Path(__file__).parent / "known_bugs"
STORED = Path(__file__).parent / "found.json"  # the outcomes of the last run of all scripts: `make upstream`
SCHEMA = 2


class Found(StrEnum):
    """What a run of a script shows."""

    REPRODUCED = "reproduced"  # seen differs from expected, or the process was killed by a signal
    GONE = "gone"  # seen is what was expected
    FAILED = "failed to run"  # an exception of the script itself, no end in time, lines missing


@dataclass(frozen=True)
class KnownBug:
    """One script and its run."""

    name: str  # of the file, without .py
    title: str
    text: str
    script: str  # the code below the docstring
    expected: str
    seen: str  # how the process ended, where that is the bug or the script failed
    outcome: Found
    seconds: float
    versions: dict[str, str | None]


def scripts(folder: Path = KNOWN_BUGS) -> list[Path]:
    """The scripts of `folder` in order of their names. Raises UserError where there is none."""
    found = sorted(folder.glob("*.py"))
    if not found:
        raise UserError(f"no scripts in {folder}")
    return found


def describe(script: Path) -> tuple[str, str, str]:
    """(title, text, code below the docstring). Raises UserError for a script without a docstring of both."""
    source = script.read_text(encoding="utf-8")
    tree = ast.parse(source)
    title, _, text = (ast.get_docstring(tree) or "").partition("\n")
    if not title or not text.strip():
        raise UserError(f"{script} needs a docstring: a title, an empty line, and what is wrong")
    code = source.splitlines()[tree.body[0].end_lineno :]
    return title, " ".join(text.split()), "\n".join(code).strip()


def run(script: Path, timeout: float = 300.0) -> KnownBug:
    """Runs one script, at most `timeout` seconds. POSIX only. Raises UserError as `describe`."""
    title, text, code = describe(script)
    start = time.monotonic()
    environment = dict(os.environ) | dict.fromkeys(STEADY_THREADS, "1")
    command = [sys.executable, "-P", str(script)]  # -P: no script shadows a module
    with tempfile.TemporaryFile("w+b") as output, tempfile.TemporaryFile("w+b") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=environment, start_new_session=True)
        in_time = True
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            in_time = False
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed, said = (_read(file) for file in (output, errors))
    ended = process.returncode if in_time else None
    expected, seen, outcome = outcome_of(printed, said, ended, timeout)
    return KnownBug(script.stem, title, text, code, expected, seen, outcome, time.monotonic() - start, versions())


#: Signals that say nothing of TVM: out of memory, or the CPU lacks an instruction that the script asks for.
_NOT_OF_TVM = (signal.SIGKILL, signal.SIGILL)


def outcome_of(printed: str, errors: str, ended: int | None, timeout: float) -> tuple[str, str, Found]:
    """(expected, seen, outcome) from what a script printed and its exit code; None where its time was up."""
    expected, seen = (_line(printed, word) for word in ("expected: ", "seen: "))
    if ended is None:
        return expected, f"no end within {timeout:.0f} s", Found.FAILED
    if ended < 0 and -ended not in _NOT_OF_TVM and expected and not seen:
        return expected, f"the process was killed by {signal.Signals(-ended).name}", Found.REPRODUCED
    if ended != 0 or not expected or not seen:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        return expected, f"exit code {ended}: {last.strip()}", Found.FAILED
    return expected, seen, Found.GONE if seen == expected else Found.REPRODUCED


def run_all(
    names: Sequence[str] = (),
    folder: Path = KNOWN_BUGS,
    timeout: float = 300.0,
    on_done: Callable[[KnownBug], None] | None = None,
) -> list[KnownBug]:
    """The scripts called `names` (none: all), one after the other. Raises UserError for a name that is not there."""
    present = {script.stem: script for script in scripts(folder)}
    unknown = [name for name in names if name not in present]
    if unknown:
        raise UserError(f"no script {', '.join(unknown)} in {folder}; there are {', '.join(present)}")
    results = []
    for name in names or present:
        bug = run(present[name], timeout)
        results.append(bug)
        if on_done is not None:
            on_done(bug)
    return results


def stored(bugs: Sequence[KnownBug], unnamed: Sequence[str]) -> dict[str, Any]:
    """The outcomes as plain data, for STORED."""
    rows = [{"name": b.name, "title": b.title, "outcome": b.outcome.value} for b in bugs]
    return {"schema": SCHEMA, "versions": bugs[0].versions, "known_bugs": rows, "unnamed_overloads": list(unnamed)}


def unnamed_overloads() -> list[str]:
    """The core ATen overloads that TVM's importer has no converter for, sorted by name. Imports torch and TVM.

    A converter is no proof that the op is right, only that a program with it is not refused. Core overloads are those
    that the core ATen sweep has calls of, which are all that torch tags.
    """
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    from ..sweeps.core_aten import Sweep

    known = ExportedProgramImporter().convert_map
    return [name for name in sorted(Sweep({}).entries()) if name.removeprefix("aten.") not in known]


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _line(printed: str, word: str) -> str:
    """The rest of the one line that begins with `word`; "" where there is none."""
    found = [line[len(word) :].strip() for line in printed.splitlines() if line.startswith(word)]
    return found[0] if len(found) == 1 else ""
