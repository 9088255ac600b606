# SPDX-License-Identifier: Apache-2.0
"""The runner of the scripts that show TVM's bugs: what a run shows, and that the real ones still show theirs."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest

from relaxgrad.bridge.errors import UserError
from relaxgrad.coverage.upstream.runner import Found, describe, run, run_all, scripts, unnamed_overloads

QUICK = ("float_not_equal_itself", "complex_unknown", "save_json_crash")


def stand_in(folder: Path, code: str) -> Path:
    script = folder / "stand_in.py"
    script.write_text(f'"""A title\n\nWhat is\nwrong.\n"""\n\n{code}\n')
    return script


def test_another_value_than_expected_is_the_bug(tmp_path: Path) -> None:
    bug = run(stand_in(tmp_path, "print('noise')\nprint('expected: 1')\nprint('seen: 2')"))
    assert (bug.outcome, bug.expected, bug.seen) == (Found.REPRODUCED, "1", "2")
    assert (bug.name, bug.title, bug.text) == ("stand_in", "A title", "What is wrong.")
    assert bug.script.startswith("print('noise')")
    assert bug.versions["apache-tvm"]
    assert bug.seconds > 0


def test_the_expected_value_means_that_the_bug_is_gone(tmp_path: Path) -> None:
    assert run(stand_in(tmp_path, "print('expected: 1')\nprint('seen: 1')")).outcome is Found.GONE


def test_a_crash_after_the_expected_value_is_the_bug(tmp_path: Path) -> None:
    bug = run(stand_in(tmp_path, "import os\nprint('expected: 1', flush=True)\nos.abort()"))
    assert bug.outcome is Found.REPRODUCED
    assert bug.seen == "the process was killed by SIGABRT"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os\nos.abort()", "exit code -6"),  # nothing was expected yet
        ("import os\nprint('expected: 1', flush=True)\nos.kill(os.getpid(), 9)", "exit code -9"),  # out of memory
        ("import os\nprint('expected: 1', flush=True)\nos.kill(os.getpid(), 4)", "exit code -4"),  # another CPU
        ("print('expected: 1', flush=True)\nimport no_such_module", "exit code 1: ModuleNotFoundError"),
        ("print('expected: 1')\nprint('seen: 2')\nraise SystemExit(3)", "exit code 3"),
        ("print('expected: 1')", "exit code 0: no message"),
        ("print('expected: 1')\nprint('seen: 2')\nprint('seen: 3')", "exit code 0"),
        ("print('seen: 2')", "exit code 0"),
    ],
)
def test_a_script_that_fails_itself_shows_nothing(tmp_path: Path, code: str, message: str) -> None:
    bug = run(stand_in(tmp_path, code))
    assert bug.outcome is Found.FAILED
    assert message in bug.seen


def test_a_script_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        "import pathlib, subprocess\nprint('expected: 1', flush=True)\nchild = subprocess.Popen(['sleep', '1000'])\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(child.pid))\nchild.wait()"
    )
    bug = run(stand_in(tmp_path, code), timeout=3)
    assert (bug.outcome, bug.seen) == (Found.FAILED, "no end within 3 s")
    assert bug.seconds < 60
    status = Path("/proc") / pid_file.read_text() / "stat"
    for _ in range(100):  # until init has reaped it
        if not status.exists() or status.read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the child still runs")


@pytest.mark.parametrize("docstring", ["", '"""A title alone."""\n'])
def test_a_script_without_a_title_and_a_text_is_an_error(tmp_path: Path, docstring: str) -> None:
    script = tmp_path / "silent.py"
    script.write_text(docstring + "print('expected: 1')\n")
    with pytest.raises(UserError, match=r"silent\.py needs a docstring"):
        run(script)


def test_a_name_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    stand_in(tmp_path, "")
    with pytest.raises(UserError, match=r"no script nothing in .*; there are stand_in"):
        run_all(["nothing"], tmp_path)
    with pytest.raises(UserError, match="no scripts in"):
        run_all(folder=tmp_path / "empty")


def test_there_are_enough_bugs_each_with_a_title_of_its_own() -> None:
    titles = [describe(script)[0] for script in scripts()]
    assert len(titles) >= 20
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("script", scripts(), ids=lambda script: script.stem)
def test_a_script_shows_its_bug_on_tvm_alone(script: Path) -> None:
    tree = ast.parse(script.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    allowed = {"tvm", "numpy", "torch", "onnx", "contextlib", "functools", "re", "resource", "threading"}
    assert {name.split(".")[0] for name in imported} <= allowed
    assert any(name.split(".")[0] == "tvm" for name in imported)
    assert '"expected: ' in script.read_text() or '"expected:"' in script.read_text()
    title, text, code = describe(script)
    assert len(title) <= 120
    assert not title.endswith(".")
    assert len(text.split()) >= 15
    assert sum(bool(line.strip()) for line in code.splitlines()) < 30


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_bug_is_still_there(name: str) -> None:
    (bug,) = run_all([name])
    assert bug.outcome is Found.REPRODUCED, bug.seen


@pytest.mark.slow
@pytest.mark.parametrize("name", [script.stem for script in scripts() if script.stem not in QUICK])
def test_every_bug_is_still_there(name: str) -> None:
    (bug,) = run_all([name])
    assert bug.outcome is Found.REPRODUCED, f"expected {bug.expected}, seen {bug.seen}"


def test_overloads_without_a_converter() -> None:
    unnamed = unnamed_overloads()
    assert {"aten.scatter_add.default", "aten.amax.default", "aten.convolution_backward.default"} <= set(unnamed)
    assert not {"aten.add.Tensor", "aten.convolution.default"} & set(unnamed)
